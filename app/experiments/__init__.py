"""What is tried on users: experiments, interleavings, shadows, promotions."""
