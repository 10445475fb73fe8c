"""Services: each function reads, decides and writes in one transaction."""
