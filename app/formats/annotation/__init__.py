"""Annotation as text: documents of tasks, CSV of annotations, lines of corpora."""
