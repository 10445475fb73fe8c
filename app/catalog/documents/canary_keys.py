"""Keys of canaries that name none: derived from the query, unique within the suite."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.base.documents.fields import CANARY_KEY

_KEY = re.compile(CANARY_KEY)
_KEY_WORDS = 48


def derive_key(query: str, queries: Mapping[str, str]) -> str:
    """Return the key of a canary that names none: its query's words, plus a hash where another query has those.

    `queries` are the queries by key of the suite, at least for `possible_keys`: an existing derived key is kept.
    """
    query = query.strip()
    words, hashed, _ = possible_keys(query)
    existing = next((key for key in (words, hashed, query) if queries.get(key) == query), None)
    return existing or (words if words and words not in queries else hashed)


def possible_keys(query: str) -> tuple[str, str, str]:
    """Return the keys that can be derived from a query: words (maybe none), words with a hash, the query itself."""
    query = query.strip()
    words = re.sub(r"[^a-z0-9]+", "-", query.lower()).strip("-")[:_KEY_WORDS].rstrip("-")
    digest = hashlib.sha256(query.encode(errors="replace")).hexdigest()[:8]
    return words, f"{words or 'q'}-{digest}", query


def is_key(text: str) -> bool:
    """Whether a text is a valid canary key."""
    return _KEY.fullmatch(text) is not None


def assign_keys(canaries: Sequence[Any], queries: Mapping[str, str]) -> list[Any]:
    """Return canaries of a request body, with a derived key where one has none: see `derive_key`."""
    queries = {**queries, **{one["key"]: str(one.get("query")) for one in canaries if _names_key(one)}}
    keyed = []
    for one in canaries:
        if lacks_key(one):
            key = derive_key(one["query"], queries)
            queries[key] = one["query"].strip()
            keyed.append({"key": key, **one})
        else:
            keyed.append(one)
    return keyed


def lacks_key(canary: Any) -> bool:
    """Whether a canary has a query and no key."""
    return isinstance(canary, dict) and "key" not in canary and isinstance(canary.get("query"), str)


def _names_key(canary: Any) -> bool:
    return isinstance(canary, dict) and isinstance(canary.get("key"), str)
