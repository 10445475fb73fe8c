"""Annotation: tasks and their pools, annotating, what annotations amount to, adoption."""
