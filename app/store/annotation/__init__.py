"""Rows of annotation: tasks and their items, annotations, corpora."""
