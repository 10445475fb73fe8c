"""What it asks of others over the network."""
