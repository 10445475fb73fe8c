"""Diagnoses, proposals and run causes: as rows."""
