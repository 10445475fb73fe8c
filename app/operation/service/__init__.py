"""What the service does for itself: it watches itself, and deletes what is older than people keep."""
