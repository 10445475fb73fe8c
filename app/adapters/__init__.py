"""The network: retrievers that are asked and hooks that are told."""
