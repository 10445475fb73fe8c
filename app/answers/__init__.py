"""Generated answers, their judges, calibration, feedback."""
