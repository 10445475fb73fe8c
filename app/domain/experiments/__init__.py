"""Live traffic: shadow, experiments, interleaving and promotion, decided without I/O."""
