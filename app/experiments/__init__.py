"""Shadow, experiments, interleaving, promotion."""
