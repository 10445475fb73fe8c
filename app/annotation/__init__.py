"""Annotation: tasks, what people say of their items, agreement, pooled recall, corpora."""
