"""Live traffic: experiments, what is taken in of their units, and what that decides."""
