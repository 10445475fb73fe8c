"""Vectors of texts: how asking for them ended, and `Embed`, the seam through which it is done.

How an embedder is reached is said in retrievers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.domain.model import Outcome
from app.domain.retrievers import Embedder


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """What came of asking an embedder. `outcome` is `ok` exactly when every text has its vector.

    Else outcome, status and detail are those of the first batch that failed; the vectors of the others are here.
    """

    vectors: Mapping[str, NDArray[np.float32]]
    """By text; all finite, not all zero, and of one length."""
    outcome: Outcome = Outcome.OK
    http_status: int | None = None
    detail: str | None = None
    """One sentence for people: why the outcome is not `ok`. Never holds a secret or a piece of a body."""
    latency_seconds: float = 0.0
    """Spent on requests, one after another; nothing where all was known."""


class Embed(Protocol):
    """Turns texts into vectors; a seam where tests put a fake."""

    def __call__(self, embedder: Embedder, texts: Sequence[str], *, anew: bool = False) -> Embedded:
        """Give the vector of each text, from memory where it is known, unless all are wanted `anew`.

        What comes anew and is not what was remembered shows another model: everything remembered of this embedder is
        forgotten then. Failures of the embedder are outcomes, never exceptions.
        """
        ...
