"""Response mappings: the bytes of a response in, a ranking out, or one sentence saying what is not as mapped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress
from typing import Any

from app.base.timestamps import parse_timestamp
from app.base.values import Ranking
from app.retrievers.client.hit_columns import Columns, compile_typed_reader, read_generically, unwrap_json
from app.retrievers.client.jmespath_paths import MalformedError, Path, Paths
from app.retrievers.domain.field_guesses import UNSTORABLE
from app.retrievers.domain.relevance import SCALE_RANGES, in_scale
from app.retrievers.domain.retrievers import ResponseMapping, Scale
from app.scoring.rankings import round_ranking

TEXT_LENGTH = 20_000
"""Longer texts are cut: they are kept as evidence, not as an archive."""
ID_LENGTH = 2_048
VERSION_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Ranking, index version and generated answer of one response."""

    ranking: Ranking
    index_version: str | None = None
    answer: str | None = None


class Reader:
    """Reads responses of one mapping. Hits after the first `max_hits` are ignored, then duplicates.

    `scale` is the one the scores must lie on, `decimals` what they are rounded to (None: not at all).
    Raises ValueError naming the field whose expression is wrong.
    """

    def __init__(
        self, mapping: ResponseMapping, max_hits: int, *, scale: Scale | None = None, decimals: int | None = None
    ) -> None:
        paths = Paths.of(mapping)
        self._identity = (mapping, max_hits, scale, decimals)
        self.wants_headers = paths.version_header is not None
        self._paths = paths
        self._max_hits = max_hits
        self._scale = scale
        self._decimals = decimals
        self._read_typed = compile_typed_reader(paths, max_hits)

    def same_as(self, other: "Reader") -> bool:
        """Whether both read every response alike."""
        return self._identity == other._identity  # noqa: SLF001 - another of the same class

    def read(self, body: bytes, headers: Mapping[str, str]) -> Reading:
        """Read one response; `headers` have lower-case names. Raises MalformedError, and nothing else."""
        if self._paths.unwrap is not None:
            body = unwrap_json(self._paths.unwrap, body)
        columns = None if self._read_typed is None else self._read_typed(body)
        if columns is None:
            columns = read_generically(self._paths, self._max_hits, body)
        version = columns.version if self._paths.version_header is None else headers.get(self._paths.version_header)
        ranking = _ranking(columns, self._paths, self._scale, len(body))
        if self._decimals is not None:
            ranking = round_ranking(ranking, self._decimals)
        return Reading(ranking=ranking, index_version=_version(version), answer=clean_answer(columns.answer))


def _ranking(columns: Columns, paths: Paths, scale: Scale | None, size: int) -> Ranking:
    """Finish the columns: clean, check lengths and scale, drop duplicates. `size` bounds the length of any string."""
    count = columns.count
    texts = columns.texts
    if texts is not None and columns.dirty:
        texts = [_cleaned(text) for text in texts]
    if columns.ids is not None:
        ids = _names(columns.ids, False)
        if columns.dirty and any(map(UNSTORABLE.search, ids)):
            index = next(index for index, name in enumerate(ids) if UNSTORABLE.search(name))
            raise MalformedError(f"{paths.place(index, paths.id)}: holds a character that cannot be stored")
    else:
        ids = [_synthetic(text, paths.place(index, paths.text)) for index, text in enumerate(texts or ())]
    documents = None if columns.documents is None else _names(columns.documents, columns.dirty)
    if texts is not None and size > TEXT_LENGTH:
        texts = [None if text is None else text[:TEXT_LENGTH] for text in texts]
    if not all(ids) or max(map(len, ids), default=0) > ID_LENGTH:
        _check_names(ids, paths, paths.id)
    if documents is not None and size > ID_LENGTH:
        _check_names(documents, paths, paths.document)
    scores = columns.scores
    if scores:
        _check_scale(scores, paths, scale)
    none: Sequence[None] = (None,) * count
    updated = None if columns.updated is None else _moments(columns.updated, paths)
    if len(set(ids)) < count:
        ids_so_far: set[str] = set()
        first = [not (name in ids_so_far or ids_so_far.add(name)) for name in ids]  # type: ignore[func-returns-value] # add() gives None
        ids = list(compress(ids, first))
        scores = None if scores is None else list(compress(scores, first))
        texts = None if texts is None else list(compress(texts, first))
        documents = None if documents is None else list(compress(documents, first))
        updated = None if updated is None else list(compress(updated, first))
        none = (None,) * len(ids)
    if updated is None and paths.updated is not None:
        updated = none
    return Ranking(
        ids=tuple(ids),
        documents=tuple(none if documents is None else documents),
        texts=tuple(none if texts is None else texts),
        scores=tuple(none if scores is None else scores),
        returned=count,
        updated=None if updated is None else tuple(updated),
    )


def _check_scale(scores: Sequence[float], paths: Paths, scale: Scale | None) -> None:
    # A scale is an interval: when both extremes lie on it, all do.
    if scale is None or (in_scale(scale, min(scores)) and in_scale(scale, max(scores))):
        return
    index = next(index for index, score in enumerate(scores) if not in_scale(scale, score))
    place = paths.place(index, paths.score)
    raise MalformedError(f"{place}: outside the declared scale, {scale}, which is {SCALE_RANGES[scale]}")


def _check_names(names: Sequence[str | None], paths: Paths, path: Path | None) -> None:
    for index, name in enumerate(names):
        if name is not None and len(name) > ID_LENGTH:
            raise MalformedError(f"{paths.place(index, path)}: longer than {ID_LENGTH:,} characters, hardly an id")
        if name == "" and path is paths.id:
            raise MalformedError(f"{paths.place(index, path)}: empty")


def _names(values: Sequence[Any], dirty: bool) -> list[Any]:  # noqa: FBT001 - private, two call sites
    names = [value if value.__class__ is str or value is None else str(value) for value in values]
    return [_cleaned(name) for name in names] if dirty else names


def _moments(values: Sequence[str | float | None], paths: Paths) -> Sequence[float | None]:
    moments: list[float | None] = []
    for index, value in enumerate(values):
        moment = value if value is None else parse_timestamp(value)
        if moment is None and value is not None:
            raise MalformedError(f"{paths.place(index, paths.updated)}: not a time: ISO 8601 or seconds since 1970")
        moments.append(moment)
    return moments


def _synthetic(text: str | None, place: str) -> str:
    """Name a hit without an id by its text, before it is cut."""
    if text is None:
        raise MalformedError(f"{place}: missing, and there is no id")
    return f"text:{blake2b(text.encode(), digest_size=8).hexdigest()}"


def _cleaned(text: str | None) -> str | None:
    return None if text is None else UNSTORABLE.sub("\ufffd", text)


def _version(value: Any) -> str | None:
    """Accept a string or a number; anything else is no version, and no reason to refuse a good ranking."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return _cleaned(str(value)[:VERSION_LENGTH]) or None


def clean_answer(value: Any) -> str | None:
    """Accept a text that says something; anything else is no answer, and no reason to refuse a good ranking."""
    return (_cleaned(value[:TEXT_LENGTH]) or "").strip() or None if isinstance(value, str) else None
