"""Baselines, the regression detector and drift: over REST."""
