"""From the answers of a run to measures, verdicts and reasons, each result matched and judged: pure."""
