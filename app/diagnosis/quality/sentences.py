"""Texts around the sections of a quality report: what each evaluates, and what an unknown one needs."""

import re
from collections.abc import Mapping
from typing import Final

ABOUT: Final[Mapping[str, str]] = {
    "suite": "How small a damage to the index the canaries of the suite would notice at all.",
    "chunk_quality": "What the retrieved chunks are like as texts, whatever was asked: empty, cut, too long, repeated.",
    "embedding_quality": "Whether the embedder puts similar texts closer together than dissimilar ones.",
    "recall": "Whether what is expected is found at all, and how deep in the ranking.",
    "precision": "Whether scores separate relevant hits from others, so that a threshold or a reranker could use them.",
    "vocabulary": "Whether queries share words with what they should find.",
    "chunk_boundaries": "Whether a passage that is expected was cut in two, so that no one chunk holds it.",
    "slow_drift": "Whether the check declines too slowly for a baseline that moves along with it.",
}
"""By the name of the point."""

TO_KNOW: Final[Mapping[str, str]] = {
    "suite": "Add canaries that expect something; three per topic are the least.",
    "chunk_quality": "Texts of hits are needed: map response.text of the retriever, if its answers hold them.",
    "embedding_quality": "Name the embedder in the retriever's document, so that every run asks it for known texts.",
    "recall": "Let canaries expect chunks, and the check run once.",
    "precision": "Map response.score of the retriever, and let canaries expect chunks: both kinds of hits are needed.",
    "vocabulary": "Expect passages by their text, or map response.text: the words of what is expected are needed.",
    "chunk_boundaries": "Expect passages by their text, of eight words or more, and map response.text.",
    "slow_drift": "Let the check run on at least five days.",
}
"""By the name of the point, what to do where it is unknown."""


def number_name(name: str) -> str:
    """Name of a number in words: `found@5` as found in the top 5, `p90` as upper tenth."""
    if match := re.fullmatch(r"found@(\d+)", name):
        return f"found in the top {match[1]}"
    if match := re.fullmatch(r"(relevant|other)_(p10|median|p90)", name):
        return f"{match[1]} hits, {_QUANTILES[match[2]]} score"
    return name.replace("_", " ")


_QUANTILES = {"p10": "lower tenth of the", "median": "median", "p90": "upper tenth of the"}
