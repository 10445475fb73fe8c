"""The probe of real retrievers, built from the settings; apart from `wiring`, which loads the whole service."""

from app import __version__
from app.base.addresses import parse_allow, retriever_policy
from app.config import Settings
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.retrievers import Probe

USER_AGENT = f"coalmine/{__version__}"


def build_probe(settings: Settings) -> Probe:
    """Return the probe of real retrievers."""
    allow = parse_allow(settings.retriever_allow) if settings.retriever_allow else ()
    return RetrieverProbe(retriever_policy(allow, settings.http_proxy), USER_AGENT)
