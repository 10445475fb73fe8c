"""The REST API: definitions, history, and the wire shapes of both."""
