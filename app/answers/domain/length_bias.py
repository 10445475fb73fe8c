"""Length bias of a judge: whether the same answer earns more YES when it is padded with redundant true sentences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from app.answers.domain.grounding import split_sentences
from app.answers.domain.quantiles import CONFIDENCE

TIMES_AS_LONG: Final = 3
"""A padded answer has at least this many times the characters of the plain one, as far as its contexts last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBias:
    """Difference of P(YES) of padded and plain answers, with its 95 % interval; None without pairs.

    `padded_only` pairs are a YES only when padded, `plain_only` pairs only when plain.
    """

    pairs: int
    padded_only: int
    plain_only: int
    difference: float | None
    low: float | None
    high: float | None

    @property
    def shown(self) -> bool:
        """Whether 0 is outside the interval: length alone changes verdicts."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def measure_length_bias(plain: Sequence[bool], padded: Sequence[bool]) -> LengthBias:
    """Length bias from verdicts on the same answers, once plain and once padded, in the same order.

    The interval is that of Bonett and Price, "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data" (Journal of Educational and Behavioral Statistics 2012): one pair is added to each
    of the two discordant kinds, which keeps its width when no pair or every pair is discordant. Fagerland, Lydersen and
    Laake (Statistics in Medicine 2014) recommend it for small samples. Raises ValueError unless both are as many.
    """
    pairs = list(zip(plain, padded, strict=True))
    if not pairs:
        return LengthBias(pairs=0, padded_only=0, plain_only=0, difference=None, low=None, high=None)
    count, gained = len(pairs), sum(long and not short for short, long in pairs)
    lost = sum(short and not long for short, long in pairs)
    up, down = (gained + 1) / (count + 2), (lost + 1) / (count + 2)
    error = math.sqrt((up + down - (up - down) ** 2) / (count + 2))
    side = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * error
    return LengthBias(
        pairs=count,
        padded_only=gained,
        plain_only=lost,
        difference=(gained - lost) / count,
        low=max(up - down - side, -1.0),
        high=min(up - down + side, 1.0),
    )


def pad_answer(answer: str, contexts: Sequence[str]) -> str | None:
    """Pad an answer with sentences of its contexts, which are true by them and add nothing that matters.

    Sentences that the answer has are left out, the others follow in order until it is three times as long. None where
    no sentence is left. Whether the answer is faithful does not change: what is added is in the contexts.
    """
    own = set(split_sentences(answer))
    spare = [sentence for text in contexts for sentence in split_sentences(text) if sentence not in own]
    padded = plain = answer.strip()
    for sentence in dict.fromkeys(spare):
        if len(padded) >= TIMES_AS_LONG * len(plain):
            break
        # What ends without a stop would else be read as one claim with what follows.
        is_ended = len(split_sentences(f"{padded} {sentence}")) > len(split_sentences(padded))
        padded = f"{padded}{' ' if is_ended else chr(10)}{sentence}"
    return padded if spare else None
