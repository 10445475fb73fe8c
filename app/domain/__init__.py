"""What the words mean and how decisions are made: standard library and numpy only, no I/O."""
