"""Proposals of judgments and the quality report: on pages."""
