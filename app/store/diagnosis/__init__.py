"""Why canaries degraded, and how good retrieval is: as rows."""
