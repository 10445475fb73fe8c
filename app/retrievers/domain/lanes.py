"""Lanes of a retriever that several processes ask: what may be under way in all of them adds up to what it takes."""

from typing import Final

from app.retrievers.domain.retrievers import Retriever

MOST_LANES: Final = 4


def lane_count(retriever: Retriever) -> int:
    """Give the number of lanes of a retriever."""
    return min(MOST_LANES, retriever.concurrency)


def fan_out(retriever: Retriever, lane: int) -> int:
    """Give the number of requests at a time in a lane; those of all lanes add up to what the retriever takes."""
    lanes = lane_count(retriever)
    return retriever.concurrency // lanes + (lane < retriever.concurrency % lanes)
