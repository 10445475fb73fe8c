"""Routes of the API."""
