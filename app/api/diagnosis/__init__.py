"""Why canaries degraded, and how good retrieval is: over REST."""
