"""From the answers of a run to measures, verdicts and reasons, each result matched and judged: pure.

`run_outcomes` judges a run by `run_inputs`, `evaluation` each of its answers; these stand on `rankings` (matches,
identity), `passages`, `measures` and `verdicts`.
"""
