"""Work that waits: deferred on the transaction that writes the rows it is about, and taken by workers."""
