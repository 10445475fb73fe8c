"""The service itself: serve, worker, health, self monitoring, retention."""
