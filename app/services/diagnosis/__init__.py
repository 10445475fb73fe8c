"""Why canaries degraded, and how good retrieval is: fetched, decided and written."""
