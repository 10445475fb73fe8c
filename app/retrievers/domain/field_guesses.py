"""Guesses which field of a hit is its text, id, score, document or time, by names and values.

Where hits and their fields are is found by `mapping_suggestions`. The names are those of the vendors' references and of
the frameworks' document classes.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from app.base.values import Value

Part = str | int
"""A step of a path: the name of a field, or a place in a list."""
MAX_PATH_LENGTH = 1024
"""The most characters a path may have; documents refuse longer ones."""


class Field(Value):
    """One field of all hits: its path, the names in it, and its value per hit (None = absent)."""

    path: str
    parts: tuple[Part, ...]
    values: Sequence[Any]
    role: str | None = None
    """Role that its place alone implies; `role_reason` says how."""
    role_reason: str = ""
    text_alone: bool = False
    """Whether it lies in a list within each hit, where only a text may be taken from."""

    @property
    def depth(self) -> int:
        """Length of its path."""
        return len(self.parts)


class Guess(Value):
    """A field guessed to have a role: weight, reason in a few words, and values."""

    path: str
    weight: float
    reason: str
    values: Sequence[Any]


def guess_fields(fields: Sequence[Field], query: str) -> dict[str, Guess]:
    """Return the likeliest field for `text`, `id`, `score`, `document` and `updated`, each field once.

    Only fields are chosen that a mapping can read of every one of the hits, by a path of at most 1,024 characters.
    """
    words = _words(query)
    distinguishing = [field for field in fields if not query or any(value != query for value in field.values)]
    chosen: dict[str, Guess] = {}
    for role, guess_role in _ROLES:
        paths = {guess.path for guess in chosen.values()}
        left = [
            field for field in distinguishing if field.path not in paths and not (field.text_alone and role != "text")
        ]
        guesses = [guess_role(field, words) for field in left]
        usable = [guess for guess in guesses if guess is not None and len(guess.path) <= MAX_PATH_LENGTH]
        if usable:
            usable.sort(key=lambda guess: -guess.weight)
            chosen[role] = _with_fallback(usable) if role == "document" else usable[0]
    return chosen


def normalize_name(part: str) -> str:
    """Name in snake case and singular: `@search.rerankerScore` as search_reranker_score, `ids` as id."""
    snake = _CAMEL.sub(r"\1_\2", part)
    words = [word for word in re.split(r"[^a-z0-9]+", snake.lower()) if word]
    return "_".join([*words[:-1], _singular(words[-1])]) if words else ""


def read_text(value: Any) -> str | None:
    """Return a text, or the joined texts of content blocks; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(one, dict) and "text" in one for one in value):
        return "\n".join(one["text"] for one in value if isinstance(one["text"], str))
    return None


def is_prose(text: str) -> bool:
    """Whether a text reads like a passage rather than like a name."""
    return len(text) >= _PASSAGE and len(text.split(maxsplit=_PASSAGE_WORDS)) >= _PASSAGE_WORDS


# --- one guess per role ----------------------------------------------------------------------


def _guess_text(field: Field, words: frozenset[str]) -> Guess | None:
    texts = [read_text(value) for value in field.values]
    if any(text is None and value is not None for text, value in zip(texts, field.values, strict=True)):
        return None
    values_present = [text for text in texts if text]
    by_name = _name_weight(field, _TEXT_NAMES)
    prose = sum(map(is_prose, values_present)) / len(values_present) if values_present else 0.0
    if not values_present or (by_name == 0 and prose < 0.8) or _name_weight(field, _NO_TEXT_NAMES):  # noqa: PLR2004 - nearly all
        return None
    length = sum(map(len, values_present)) / len(values_present)
    shares = len(words) and sum(len(words & _words(text)) for text in values_present) / len(values_present) / len(words)
    weight = 0.6 * by_name + 0.4 * prose + min(length / 400, 0.3) + 0.3 * shares - _DEEP * field.depth
    weight -= _LISTED * field.text_alone
    reason = (
        f"{_name_reason(field, by_name)}{'long natural text' if prose else 'text'}, {length:.0f} characters on average"
    )
    return Guess(path=field.path, weight=weight * len(values_present) / len(texts), reason=reason, values=field.values)


def _guess_id(field: Field, _words: frozenset[str]) -> Guess | None:
    values, name = field.values, normalize_name(str(field.parts[-1]))
    if name in _COUNTER_NAMES or not all(map(_is_name, values)):
        return None
    if any(isinstance(value, str) and UNSTORABLE.search(value) for value in values):
        return None
    by_name, distinct = _name_weight(field, _ID_NAMES), len(set(map(str, values)))
    if field.role == "id":
        by_name = _PLACED
    elif name not in _ID_NAMES:
        by_name = 0.0 if name in _DOCUMENT_NAMES else by_name / 2  # several chunks share the id of a file
    looks = len(values) >= _LEAST_HITS and all(isinstance(value, str) and _CODE.fullmatch(value) for value in values)
    if (by_name == 0 and not (looks and distinct == len(values))) or (
        distinct < len(values) and 2 * distinct <= len(values)
    ):
        return None
    if distinct == len(values):
        weight, note = by_name or 0.25, f"different in each of {len(values)} hits" if len(values) > 1 else "short"
    else:
        weight, note = by_name * 0.3, f"though only {distinct} of {len(values)} differ"
    if are_ranks(values):
        weight, note = weight * 0.3, f"{note}, but only as the hits are counted: it may be the rank"
    reason = f"{_name_reason(field, by_name)}{note}"
    return Guess(path=field.path, weight=weight - _DEEP * field.depth, reason=reason, values=values)


def _guess_score(field: Field, _words: frozenset[str]) -> Guess | None:
    by_name = _PLACED if field.role == "score" else _name_weight(field, _SCORE_NAMES)
    path, numbers = field.path, list(field.values)
    if by_name and all(isinstance(value, str) and _DECIMAL.fullmatch(value) for value in numbers):
        path, numbers = f"to_number({path})", list(map(float, numbers))
    if not all(map(_is_number, numbers)) or normalize_name(str(field.parts[-1])) in _COUNTER_NAMES:
        return None
    order = score_order(numbers)
    fractional = any(isinstance(number, float) and not number.is_integer() for number in numbers)
    if by_name == 0 and not (fractional and order in {"falling", "rising"} and len(numbers) >= _LEAST_HITS):
        return None
    weight = (
        (by_name or 0.3) + (0.15 if order == "falling" else 0.1 if order == "rising" else 0.0) - _DEEP * field.depth
    )
    note = f"a number, {order} from {numbers[0]:.4g} to {numbers[-1]:.4g}" if order else "a number"
    return Guess(path=path, weight=weight, reason=f"{_name_reason(field, by_name)}{note}", values=numbers)


def _guess_document(field: Field, _words: frozenset[str]) -> Guess | None:
    values_present = [value for value in field.values if value is not None]
    if not values_present or not all(map(_is_name, values_present)):
        return None
    by_name = _name_weight(field, _DOCUMENT_NAMES)
    place = all(isinstance(value, str) and _PLACE.search(value) for value in values_present)
    if (by_name == 0 and not place) or any(isinstance(value, str) and is_prose(value) for value in values_present):
        return None
    weight = (max(by_name, 0.5 if place else 0.0) + 0.1 * place) * (0.5 + 0.5 * len(values_present) / len(field.values))
    note = "an address or a file" if place else "short"
    return Guess(
        path=field.path,
        weight=weight - _DEEP * field.depth,
        reason=f"{_name_reason(field, by_name)}{note}",
        values=field.values,
    )


def _guess_updated(field: Field, _words: frozenset[str]) -> Guess | None:
    by_name = _name_weight(field, _TIME_NAMES)
    values_present = [value for value in field.values if value is not None]
    if (
        not by_name
        or not values_present
        or not all(isinstance(value, str) or _is_number(value) for value in values_present)
    ):
        return None
    moments = [parse_timestamp(value) for value in values_present]
    if not all(moment is not None and _FIRST_DAY <= moment <= _LAST_DAY for moment in moments):
        return None
    return Guess(
        path=field.path,
        weight=by_name * len(values_present) / len(field.values) - _DEEP * field.depth,
        reason=f"{_name_reason(field, by_name)}reads as a time",
        values=field.values,
    )


GuessRole = Callable[[Field, frozenset[str]], Guess | None]
_ROLES: Sequence[tuple[str, GuessRole]] = (
    ("text", _guess_text),
    ("id", _guess_id),
    ("score", _guess_score),
    ("document", _guess_document),
    ("updated", _guess_updated),
)


def _with_fallback(guesses: Sequence[Guess]) -> Guess:
    """Let the next guess fill the gaps of the likeliest: a file here, an address there."""
    best = guesses[0]
    gaps = [index for index, value in enumerate(best.values) if value is None]
    for other in guesses[1:]:
        fills = all(isinstance(other.values[index], str) and _PLACE.search(other.values[index]) for index in gaps)
        if gaps and fills and "[*]" not in best.path + other.path:
            reason = f"{best.reason}; where there is none, {other.reason}"
            path = f"{best.path} || {other.path}"
            if len(path) <= MAX_PATH_LENGTH:
                return Guess(path=path, weight=best.weight, reason=reason, values=best.values)
    return best


# --- names and values ----------------------------------------------------------------------------------------


def score_order(numbers: Sequence[float]) -> str:
    """Order of numbers: falling, rising, in no order; "" where they are equal or one."""
    pairs = list(pairwise(numbers))
    if not pairs or all(one == two for one, two in pairs):
        return ""
    if all(one >= two for one, two in pairs):
        return "falling"
    return "rising" if all(one <= two for one, two in pairs) else "in no order"


def are_ranks(values: Sequence[Any]) -> bool:
    """Whether these only count the hits, from 0 or from 1."""
    texts = [str(value) for value in values]
    return len(texts) > 1 and any(texts == [str(at) for at in range(first, first + len(texts))] for first in (0, 1))


def _name_weight(field: Field, names: Mapping[str, float]) -> float:
    """Weight of a field's name: by itself, by its end, or for `text.value` and the like by the one above."""
    parts = [normalize_name(part) for part in [part for part in field.parts if isinstance(part, str)][-2:]]
    if len(parts) > 1 and parts[-1] in _EMPTY_NAMES and parts[-1] not in names:
        parts.pop()
    if not parts or not parts[-1]:
        return 0.0
    if parts[-1] in names:
        return names[parts[-1]]
    words = parts[-1].split("_")[-_NAME_WORDS - 1 :]
    ends = ["_".join(words[start:]) for start in range(1, len(words))]
    return next((0.8 * names[end] for end in ends if end in names), 0.0)


def _name_reason(field: Field, by_name: float) -> str:
    if field.role is not None:
        return f"{field.role_reason}, "
    name = next((part for part in reversed(field.parts) if isinstance(part, str)), "")
    return f"named {name[:60]}, " if by_name else ""


def _is_name(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _NAME and "\n" not in value
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _LARGE and math.isfinite(value)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > len("ties"):
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 1 else word


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"\w+", text[:5_000].lower()) if len(word) > 3)  # noqa: PLR2004 - not: the, of


_DEEP, _LISTED = 0.02, 0.2
_PLACED = 0.95
_NAME = 500
_NAME_WORDS = 4  # no name below has more
_PASSAGE, _PASSAGE_WORDS, _LEAST_HITS = 40, 6, 3
_LARGE = 1e300
_FIRST_DAY, _LAST_DAY = 473_385_600.0, 4_102_444_800.0  # 1985 to 2100: else `timestamp: 12.5` is one of a video
_CAMEL = re.compile(r"([a-z0-9])([A-Z])")
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""Characters that cannot be stored: NUL, and halves of one."""
_CODE = re.compile(r"(?=.*\d)[\w.:/#-]{3,80}", re.ASCII)
_DECIMAL = re.compile(r"-?\d{1,20}(\.\d{1,20})?([eE]-?\d{1,2})?", re.ASCII)
_PLACE = re.compile(
    r"^[a-z][a-z0-9+.-]{1,9}://|^/|\.(md|mdx|html?|pdf|txt|docx?|rst|csv|json|pptx?|xlsx?)(#|$)", re.IGNORECASE
)
_EMPTY_NAMES = frozenset({"value", "raw", "string", "plain", "data", "doc"})
_COUNTER_NAMES = frozenset(
    {"rank", "position", "index", "page", "number", "start", "end", "offset", "line", "version", "count", "length"}
    | {"token", "page_number", "chunk_index", "char_count", "word_count", "shard", "hit", "took", "size", "seq_no"}
)
_TEXT_NAMES: Mapping[str, float] = {
    **dict.fromkeys(("text", "chunk_text", "page_content", "passage_text", "content_text"), 1.0),
    **dict.fromkeys(("content", "passage", "chunk", "chunk_content", "text_content"), 0.95),
    **dict.fromkeys(("body", "raw_text", "document_text", "paragraph", "excerpt", "segment", "context"), 0.8),
    **dict.fromkeys(("snippet", "document", "markdown", "plain_text", "extract", "sentence", "answer"), 0.6),
    **dict.fromkeys(("value", "description", "summary", "message", "data"), 0.4),
    "title": 0.05,
}
_NO_TEXT_NAMES: Mapping[str, float] = dict.fromkeys(
    ("error", "explanation", "query", "embedding", "vector", "stack_trace", "highlight", "warning", "prompt"), 1.0
)
_ID_NAMES: Mapping[str, float] = {
    **dict.fromkeys(("id", "chunk_id", "point_id", "passage_id", "node_id", "vector_id"), 1.0),
    **dict.fromkeys(("uuid", "guid", "uid", "pk", "object_id", "record_id", "segment_id", "hit_id"), 0.9),
    **dict.fromkeys(("doc_id", "document_id", "docid", "docno", "key", "hash", "chunk_hash"), 0.6),
    **dict.fromkeys(("ref", "chunk"), 0.4),
}
_SCORE_NAMES: Mapping[str, float] = {
    **dict.fromkeys(("score", "similarity", "relevance", "relevance_score", "similarity_score"), 1.0),
    **dict.fromkeys(("distance", "cosine", "cosine_similarity", "certainty", "reranker_score", "rerank_score"), 0.95),
    **dict.fromkeys(("dist", "rank_score", "dot_product", "bm25", "rrf", "sim", "relevancy", "final_score"), 0.8),
    **dict.fromkeys(("confidence", "probability", "weight", "logit", "match", "boost"), 0.5),
}
_DOCUMENT_NAMES: Mapping[str, float] = {
    **dict.fromkeys(("source", "document_url", "source_url", "source_uri"), 1.0),
    **dict.fromkeys(("url", "uri", "link", "href", "permalink"), 0.95),
    **dict.fromkeys(("file", "filename", "file_name", "file_path", "filepath", "path"), 0.9),
    **dict.fromkeys(("doc_id", "document_id", "docid", "doc", "document", "ref_doc_id"), 0.8),
    **dict.fromkeys(("document_title", "document_name", "title", "file_id", "source_id"), 0.7),
    "parent_id": 0.5,
    **dict.fromkeys(("name", "page", "origin"), 0.3),
}
_TIME_NAMES: Mapping[str, float] = {
    **dict.fromkeys(("updated", "updated_at", "last_updated", "last_modified", "modified", "modified_at"), 1.0),
    **dict.fromkeys(("mtime", "update_time", "updated_on", "last_update", "last_modified_date", "date_modified"), 1.0),
    **dict.fromkeys(("date", "timestamp", "indexed_at", "published", "published_at", "publish_date"), 0.7),
    **dict.fromkeys(("created", "created_at", "creation_date", "create_time", "file_date", "time"), 0.5),
}


def parse_timestamp(value: str | float) -> float | None:
    """Return a time as seconds since 1970 in UTC: from ISO 8601 text, unix seconds or milliseconds; None = neither.

    A date is its beginning, a text without a zone is UTC. Numbers from 1e11 on are milliseconds: as seconds they would
    lie beyond the year 5000, as milliseconds after 1973.
    """
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _LENGTH or not text:
            return None
        if not _NUMBER.fullmatch(text):
            try:
                read = datetime.fromisoformat(text.upper())
            except ValueError:
                return None
            return _within_calendar((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())
        value = float(text)
    return _within_calendar(value / 1000 if abs(value) >= _MILLISECONDS else value)


def _within_calendar(seconds: float) -> float | None:
    return seconds + 0.0 if _FIRST_SECOND <= seconds <= _LAST_SECOND else None


_LENGTH = 64
_NUMBER = re.compile(r"-?\d{9,14}(\.\d{1,9})?", re.ASCII)
"""Unix time written as text; shorter rows of digits are dates such as 20260131."""
_MILLISECONDS = 1e11


_FIRST_SECOND, _LAST_SECOND = -62_135_596_800.0, 253_402_300_799.0  # of the years 1 and 9999, the range of datetime
