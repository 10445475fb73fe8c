"""Whose limits a request to a retriever falls under: of everything in this process that asks it, or of its lane."""

from app.base.net.limits import Limits, Peer
from app.retrievers.domain.probe_failures import url_address
from app.retrievers.domain.retrievers import ProbeContext


def peer_of(context: ProbeContext, limits: Limits) -> Peer:
    """Give the retriever as a peer in these limits, by slug and address.

    The address, since definitions that are only tried often have the same slug.
    """
    retriever = context.retriever
    address = url_address(retriever.url, retriever.options) or retriever.url
    name = f"{retriever.slug} at {address}"
    if context.lane is None:
        return Peer(limits=limits, name=name, defined_at=context.defined_at, patience=context.patience)
    in_lane = f"{name}, lane {context.lane.number}"
    return Peer(
        limits=limits,
        name=in_lane,
        defined_at=context.defined_at,
        reserve=context.lane.reserve,
        rate_name=name,
        patience=context.patience,
    )
