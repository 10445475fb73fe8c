"""Rows and queries of what was; each module has one part of a run's life.

- `open_runs`: from the request for a run until it ends, with the answers that are staged meanwhile.
- `ranking_rows`: what was found, stored once, and what it scored.
- `run_endings`: what is written when a run ends.
- `run_rows` and `state_rows`: what is read of runs, and of what held for their canaries.
- `series`: numbers over time, for charts.
- `rescorings`: the same runs judged anew.
- `encodings`: how numbers of runs become bytes; `expired`: what is too old, and deleted.
"""
