"""Annotation: pools of chunks to grade, agreement and consensus of annotators, pooled recall, reach of traffic."""
