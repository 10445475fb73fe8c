"""The status pages, rendered on the server."""
