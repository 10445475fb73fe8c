"""Cost of a judge's calls: estimated before a call to keep within the budget, exact from the tokens it reports."""

from typing import Final

from app.answers.domain.prompts import Prompt

_BYTES_PER_TOKEN: Final = 3
"""English takes about four bytes a token, other scripts about three: so the estimate errs towards too much."""
_MILLION: Final = 1_000_000


def estimate_tokens(prompt: Prompt) -> int:
    """Tokens that a call may take, from the UTF-8 bytes of its prompt and the longest reply that it allows.

    An estimate to reserve budget by: every model cuts text differently. Count what the endpoint reports as used.
    """
    sent = len(prompt.system.encode()) + len(prompt.user.encode())
    return -(-sent // _BYTES_PER_TOKEN) + prompt.most_tokens


def cost(tokens: int, price_per_million: float) -> float:
    """Cost of that many tokens, in the currency of the price."""
    return tokens * price_per_million / _MILLION
