"""Generated answers: prompts and readers of judges, lexical grounding, and how far a judge may be believed."""
