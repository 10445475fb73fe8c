"""What people write and read: documents, described once."""
