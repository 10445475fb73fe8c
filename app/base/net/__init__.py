"""The one transport to others: connections, limits, headers."""
