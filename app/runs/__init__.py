"""One pass over a suite: what is due, plan, ask, stage, finalise, re-score, and the gate."""
