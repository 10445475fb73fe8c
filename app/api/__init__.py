"""The REST API: what should be, what happened, and the wire shapes of both."""
