"""Whose limits a request to a retriever falls under: those of everything in this process that asks the same one."""

from app.adapters.limits import Limits, Peer
from app.domain.probing.probe_failures import url_address
from app.domain.probing.retrievers import ProbeContext


def peer_of(context: ProbeContext, limits: Limits) -> Peer:
    """Give the retriever as a peer in these limits, by slug and address.

    The address, since definitions that are only tried often have the same slug.
    """
    retriever = context.retriever
    address = url_address(retriever.url, retriever.options) or retriever.url
    return Peer(limits=limits, name=f"{retriever.slug} at {address}", defined_at=context.defined_at)
