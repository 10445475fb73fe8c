"""Jobs: deferred on the transaction that writes the rows, done by workers."""
