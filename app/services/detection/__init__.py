"""Baselines, the regression detector and drift: fetched, decided and written."""
