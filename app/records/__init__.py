"""What was: runs, results, rankings, states, series, and their views."""
