"""Generated answers: had after a run, grounded, judged, and told of."""
