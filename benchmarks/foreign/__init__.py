"""The cause, right on systems we did not make: retrievers of others, faults whose truth is known, and a receiver."""
