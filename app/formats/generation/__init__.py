"""Documents of the judges of generated answers."""
