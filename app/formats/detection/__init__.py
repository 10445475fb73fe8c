"""Baselines, the regression detector and drift: as text."""
