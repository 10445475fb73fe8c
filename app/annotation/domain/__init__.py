"""What is decided about grades of people, from values alone."""
