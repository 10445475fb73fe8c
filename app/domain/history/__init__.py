"""History of runs, results and measures: gaps and views; without I/O."""
