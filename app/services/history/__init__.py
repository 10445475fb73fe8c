"""Services for history: views of runs, results, checks, canaries and series, and retention."""
