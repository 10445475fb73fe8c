"""Why canaries degraded, and how good retrieval is: on pages."""
