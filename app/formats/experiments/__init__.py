"""Live traffic as text: documents of experiments, exposures and outcomes."""
