"""The service itself: worker, jobs, health, self monitoring, retention, API keys, metrics endpoint."""
