"""Requests to retrievers and the services beside them, over the network."""
