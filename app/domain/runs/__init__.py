"""Evaluation of runs: matching, measures, verdicts, aggregates; without I/O."""
