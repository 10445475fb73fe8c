"""What is due, and what came of it: fetched, decided and written."""
