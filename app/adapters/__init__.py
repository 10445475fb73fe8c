"""The network: retrievers, hooks and other services."""
