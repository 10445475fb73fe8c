"""Decisions of diagnosis: evidence, causes, re-anchoring, and the checklist of quality."""
