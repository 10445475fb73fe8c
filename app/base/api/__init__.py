"""What all routes of the API share."""
