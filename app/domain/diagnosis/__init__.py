"""Why a canary degraded: what to ask the retriever again, what its answers mean, and what they mean together."""
