"""What was, as people read it: fetched, decided and written."""
