"""The probe of real retrievers, built from the settings; apart from `wiring`, which loads the whole service."""

from app import __version__
from app.adapters.probing.probe import RetrieverProbe
from app.config import Settings
from app.domain.addresses import parse_allow, retriever_policy
from app.domain.probing.retrievers import Probe

USER_AGENT = f"coalmine/{__version__}"


def build_probe(settings: Settings) -> Probe:
    """Return the probe of real retrievers."""
    allow = parse_allow(settings.retriever_allow) if settings.retriever_allow else ()
    return RetrieverProbe(retriever_policy(allow, settings.http_proxy), USER_AGENT)
