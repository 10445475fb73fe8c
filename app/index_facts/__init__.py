"""Facts of the index beside answers: how much it holds, and how much of what exact search finds it returns."""
