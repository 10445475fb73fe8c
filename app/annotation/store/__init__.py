"""Rows and queries of annotation.

- `task_rows`: tasks with their canaries and items, corpora, annotations, answers and pairs.
- `recall_rows`: pooled recall by task, suite and retriever.
- `judgment_rows`: what brought judgments up, and what was asked then.
"""
