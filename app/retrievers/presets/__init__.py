"""Presets: what is the same for all users of a vendor's retrieval API, as a table. Each entry fills in a document.

A preset is data and asks nobody; what users write in a document wins over it, field by field.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from app.retrievers.presets.frameworks import FRAMEWORKS
from app.retrievers.presets.managed import MANAGED
from app.retrievers.presets.preset import LIVE, SHAPE, Option, Preset
from app.retrievers.presets.search_engines import SEARCH_ENGINES
from app.retrievers.presets.vector_stores import VECTOR_STORES

__all__ = ["LIVE", "PRESETS", "SHAPE", "Option", "Preset"]

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {preset.name: preset for preset in (*FRAMEWORKS, *VECTOR_STORES, *SEARCH_ENGINES, *MANAGED)}
)
