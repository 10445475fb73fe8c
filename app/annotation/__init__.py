"""Tasks, annotations, agreement, pooled recall."""
