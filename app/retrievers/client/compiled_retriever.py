"""A retriever compiled once per run: templates of its requests, rendered per canary, and the reader of its answers.

Nothing is sent here. The reader makes rankings of the fields that `answer_fields` reads: names, scores on their scale,
times. Which response is no answer is decided in `responses`.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import compress
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from jmespath.exceptions import JMESPathError

from app.base.addresses import OWN_HEADERS
from app.base.errors import InvalidInputError, Problem
from app.base.net.transfer import Request, Response, header_line
from app.base.values import (
    Answer,
    Outcome,
    Ranking,
    Turn,
    Value,
    replace,
)
from app.retrievers.client.answer_fields import (
    Columns,
    Path,
    Paths,
    check_written,
    compile_typed_reader,
    parse_json,
    read_generically,
    unwrap_json,
)
from app.retrievers.client.credentials import masked
from app.retrievers.client.responses import MalformedError, failed_answer, failure_of
from app.retrievers.domain.field_guesses import UNSTORABLE, parse_timestamp
from app.retrievers.domain.retrievers import (
    HISTORY,
    SCALE_RANGES,
    Lookup,
    ProbeContext,
    ProbeQuery,
    ResponseMapping,
    Retriever,
    Scale,
    ScorerKind,
    in_scale,
)
from app.scoring.rankings import decimals_of, round_ranking

Parameter = str | int | float | Sequence[float] | Sequence[str] | Sequence[Turn]
Encode = Callable[[Parameter], bytes]
Part = bytes | tuple[str, Encode]


class Template:
    """Fixed pieces and placeholders between them; made by `json_template` and `url_template`."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Iterable[Part]) -> None:
        merged: list[Part] = []
        for part in parts:
            last = merged[-1] if merged else None
            if isinstance(part, bytes) and isinstance(last, bytes):
                merged[-1] = last + part
            else:
                merged.append(part)
        self._parts = tuple(merged)

    @property
    def names(self) -> frozenset[str]:
        """The names still to be filled."""
        return frozenset(part[0] for part in self._parts if not isinstance(part, bytes))

    def bind(self, /, **values: Parameter) -> "Template":
        """Template with some names filled: what does not change within a run costs nothing per canary."""
        return Template(
            part if isinstance(part, bytes) or part[0] not in values else part[1](values[part[0]])
            for part in self._parts
        )

    def render(self, /, **values: Parameter) -> bytes:
        """Bytes with every remaining name filled."""
        return b"".join([part if isinstance(part, bytes) else part[1](values[part[0]]) for part in self._parts])


def json_template(document: Any, names: Sequence[str], field_names: Sequence[str] = ()) -> Template:
    """Compile a JSON document. A string that is only a placeholder becomes the value with its type: 10, not "10".

    Names of fields may hold the placeholders of `field_names` alone, as text. Raises ValueError for a placeholder that
    is not closed or not among `names`, saying which are.
    """
    return Template(_json_parts(document, names, field_names))


def url_template(url: str, parameters: Mapping[str, Any], names: Sequence[str]) -> Template:
    """Compile a URL and the query parameters to append to it; a list repeats its parameter, None leaves it out.

    Placeholders may stand behind the host only: where a request goes is never a matter of the query.
    Raises ValueError for an unknown or unclosed placeholder, one out of place, or what is not an http(s) URL.
    """
    try:
        split = urlsplit(url)
        host, _ = split.hostname, split.port
    except ValueError as error:
        raise ValueError(f"the URL is malformed: {error}") from None
    if split.scheme not in {"http", "https"} or not host:
        raise ValueError("the URL must begin with http:// or https:// and a host")
    if "{{" in split.netloc:
        raise ValueError("placeholders may not stand in the host of a URL")
    parts: list[Part] = [f"{split.scheme}://{split.netloc}".encode()]
    parts += _text_parts(split.path or "/", names, _path_segment, _keep_escapes)
    query: list[list[Part]] = [_text_parts(split.query, names, _percent, _keep_escapes)] if split.query else []
    for name, value in parameters.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is not None:
                text = item if isinstance(item, str) else msgspec.json.encode(item).decode()
                query.append([f"{quote(name, safe='')}=".encode(), *_text_parts(text, names, _percent, _percent)])
    for number, piece in enumerate(query):
        parts += [b"&" if number else b"?", *piece]
    return Template(parts)


def _json_parts(node: Any, names: Sequence[str], field_names: Sequence[str]) -> list[Part]:
    parts: list[Part]
    if isinstance(node, str):
        alone = _PLACEHOLDER.fullmatch(node.strip())
        if alone:
            return [(_check_name(alone[1], names), _json)]
        return [b'"', *_text_parts(node, names, _json_text, _json_text), b'"']
    if isinstance(node, Mapping):
        parts = [b"{"]
        for number, (key, value) in enumerate(node.items()):
            if any(name not in field_names for name in _PLACEHOLDER.findall(str(key))):
                raise ValueError("names of fields may hold placeholders of options alone")
            name_parts = _text_parts(str(key), field_names, _json_text, _json_text)
            parts += [b',"' if number else b'"', *name_parts, b'":', *_json_parts(value, names, field_names)]
        return [*parts, b"}"]
    if isinstance(node, list | tuple):
        parts = [b"["]
        for number, value in enumerate(node):
            parts += [b"," if number else b"", *_json_parts(value, names, field_names)]
        return [*parts, b"]"]
    try:
        return [msgspec.json.encode(node)]
    except TypeError:
        raise ValueError(f"a {type(node).__name__} has no place in a JSON document") from None


def _text_parts(text: str, names: Sequence[str], value: Encode, fixed: Encode) -> list[Part]:
    """Split a text at its placeholders; `value` encodes what is filled in, `fixed` the text around."""
    parts: list[Part] = []
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        parts += [fixed(text[end : match.start()]), (_check_name(match[1], names), value)]
        end = match.end()
    if "{{" in text[end:]:
        raise ValueError("a placeholder is opened by {{ and not closed by }}")
    return [*parts, fixed(text[end:])]


def _check_name(name: str, names: Sequence[str]) -> str:
    if name not in names:
        known = ", ".join(f"{{{{ {known} }}}}" for known in names)
        raise ValueError(f"{{{{ {name} }}}} is not a known placeholder; there are {known}")
    return name


def _json(value: Parameter) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:  # a lone surrogate: legal in JSON as an escape
        return json.dumps(value).encode()


def _json_text(value: Parameter) -> bytes:
    return _json(str(value))[1:-1]


def _percent(value: Parameter) -> bytes:
    return quote(str(value), safe="", errors="replace").encode()


def _path_segment(value: Parameter) -> bytes:
    return _percent(value).replace(b".", b"%2E")  # ".." must not walk up


def _keep_escapes(value: Parameter) -> bytes:
    return quote(str(value), safe="%/?:@!$&'()*+,;=-._~[]", errors="replace").encode()


_PLACEHOLDER = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_encode = msgspec.json.Encoder().encode
CACHE_BYTES = 48_000_000
"""How large the bodies are, together, whose readings are remembered from one run to the next, of all retrievers."""

_OK = Outcome.OK  # a member of an enumeration is slow to look up


def read_answer(response: Response, reader: "Reader | CachingReader", secrets: Sequence[str] = ()) -> Answer:
    """Return the answer of a response: first its failure, then its status, then its shape.

    What is quoted of the server is without `secrets`.
    """
    failure = failure_of(response, secrets)
    if failure is not None:
        return failure
    status, seconds = response.status, response.latency_seconds
    try:
        reading = reader.read(response.body, response.headers)
    except MalformedError as error:
        return failed_answer(error.outcome, masked(str(error), secrets), status, seconds)
    return Answer(
        outcome=_OK,
        latency_seconds=seconds,
        ranking=reading.ranking,
        http_status=status,
        index_version=reading.index_version,
        generated=reading.answer,
        cache_sign=response.cache_sign,
        slowing=response.slowing,
    )


TEXT_LENGTH = 20_000
"""Longer texts are cut: they are kept as evidence, not as an archive."""
ID_LENGTH = 2_048
VERSION_LENGTH = 200


class Reading(Value):
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


class WriteReader(Reader):
    """Reads what answers a request that changes the source: it has no hits, and may say that it failed.

    Only the usual errors are looked for, since the mapping is that of queries.
    """

    def __init__(self) -> None:
        super().__init__(ResponseMapping(hits="hits", id="id"), 1)

    def read(self, body: bytes, headers: Mapping[str, str]) -> Reading:
        """Read one response; `headers` say nothing. Raises MalformedError, and nothing else."""
        del headers
        check_written(self._paths, body)
        return Reading(ranking=Ranking(ids=(), documents=(), texts=(), scores=(), returned=0))


class FactReader(Reader):
    """Reads the numbers of an answer about the index: a ranking of their names, with the numbers as scores.

    Where there is no number, its score is None and its text says what is there instead.
    """

    def __init__(self, reads: Mapping[str, str]) -> None:
        """Compile the paths; raises ValueError naming the wrong one."""
        super().__init__(ResponseMapping(hits="hits", id="id"), 1)
        self._numbers = {name: Path.of(name, path) for name, path in reads.items()}

    def same_as(self, other: Reader) -> bool:
        """Whether both read every response alike: two of these are never taken for each other."""
        return self is other

    def read(self, body: bytes, headers: Mapping[str, str]) -> Reading:
        """Read one response; `headers` say nothing. Raises MalformedError, and nothing else."""
        del headers
        check_written(self._paths, body)
        answer, _ = parse_json(body)
        found = [_number(path, answer) for path in self._numbers.values()]
        ranking = Ranking(
            ids=tuple(self._numbers),
            documents=(None,) * len(found),
            texts=tuple(why for _, why in found),
            scores=tuple(number for number, _ in found),
            returned=len(found),
        )
        return Reading(ranking=ranking)


def _number(path: Path, answer: Any) -> tuple[float | None, str | None]:
    """Return the number at a path, or why there is none."""
    try:
        value: Any = path.search(answer)
    except (JMESPathError, ValueError, TypeError, RecursionError):
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        what = "nothing" if value is None else "no number"
        return None, f"there is {what} at {path.text} in the answer"
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    return (number, None) if math.isfinite(number) else (None, f"the number at {path.text} is too large")


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


class CachingReader:
    """A reader that keeps the readings of the run before: an equal body reads equal, so it is read once.

    Bodies are told apart by their length and Python's hash of 64 bits, which has a secret key of each process: among
    ten thousand, one in 10 ** 15 bodies is taken for another.
    """

    def __init__(self, reader: Reader, before: "CachingReader | None") -> None:
        self.reader = reader
        self.now: dict[tuple[int, int], Reading] = {}
        self._before = before.now if before is not None and before.reader.same_as(reader) else {}
        self.bytes = 0

    def forget(self) -> None:
        """Drop the readings of the run before."""
        self._before = {}

    def read(self, body: bytes, headers: Mapping[str, str]) -> Reading:
        """Read one response; see `Reader.read`."""
        if self.reader.wants_headers:
            return self.reader.read(body, headers)
        key = hash(body), len(body)
        reading = self._before.get(key) or self.reader.read(body, headers)
        if self.bytes + len(body) <= CACHE_BYTES // 2 and key not in self.now:
            self.bytes += len(body)
            self.now[key] = reading
        return reading


T = TypeVar("T")

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class CompiledLookup(Value):
    """URL of a value that is fetched once per run, and its path in the response."""

    url: Template
    path: Path

    def value_in(self, body: bytes) -> str | None:
        """Value in a response; None where there is none to use."""
        try:
            value: Any = self.path.search(parse_json(body)[0])
        except (MalformedError, JMESPathError, ValueError, TypeError, RecursionError):
            return None
        return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None


class Plan(Value):
    """Compiled configuration of a retriever."""

    url: Template
    body: Template | None
    headers: tuple[bytes, ...]
    """Lines that are the same for all queries."""
    varied_headers: tuple[tuple[str, str], ...]
    """Names and values of the others: values with placeholders of options that some queries set."""
    header_names: frozenset[str]
    """Those the configuration sets itself, in lower case: nothing of ours replaces them."""
    lookup: CompiledLookup | None
    reader: Reader
    options: Mapping[str, str]
    """Those that some queries set for themselves, with the values for all others."""

    def values_of(self, item: ProbeQuery, vectors: Mapping[str, Sequence[float]]) -> dict[str, Parameter]:
        """Return what fills the templates for one query."""
        values: dict[str, Parameter] = {HISTORY: item.history, **self.options, **item.vars, "query": item.query}
        if vectors:
            values["vector"] = vectors[item.query]
        return values

    def headers_of(self, item: ProbeQuery) -> tuple[bytes, ...]:
        """Return the header lines of one query."""
        if not self.varied_headers:
            return self.headers
        values = {**self.options, **item.vars}
        own = (header_line(name, fill_placeholders(value, values)) for name, value in self.varied_headers)
        return (*self.headers, *own)

    def bound(self, values: Mapping[str, str]) -> "Plan":
        """Plan with values that became known for the whole run."""
        body = None if self.body is None else self.body.bind(**values)
        return replace(self, url=self.url.bind(**values), body=body)


@dataclass(frozen=True, slots=True)
class ProblemCollector:
    """Compiles parts of a configuration and collects their errors, so that all are reported at once."""

    problems: list[Problem] = field(default_factory=list)

    def __call__(self, path: str, compiled: Callable[[], T]) -> T | None:
        """Compile a part; None where that raises ValueError, which becomes the problem of `path`."""
        try:
            return compiled()
        except ValueError as error:
            self.problems.append(Problem(path=path, message=str(error)))
            return None


def varied_options(retriever: Retriever, queries: Sequence[ProbeQuery]) -> frozenset[str]:
    """Return the options that these queries set for themselves.

    Raises InvalidInputError for what is no option, for what the lookup takes once per run, and for a conversation that
    the retriever does not get.
    """
    once = set() if retriever.lookup is None else set(_PLACEHOLDER.findall(retriever.lookup.url))
    names = {name: item.key for item in queries for name in item.vars}
    how = "add it there with its default, or take it out of vars"
    problems = [
        f"'{name}' is no option of the retriever, and canary '{key}' or its check sets it: {how}"
        if name not in retriever.options
        else f"'{name}' cannot be set, since the lookup takes it once per run: take it out of vars"
        for name, key in names.items()
        if name not in retriever.options or name in once
    ]
    problems = problems or list(_unsendable_headers(retriever, queries, names.keys()))
    if problems:
        raise InvalidInputError([Problem(path="vars", message=message) for message in problems])
    spoken = next((item.key for item in queries if item.history), None)
    if spoken is not None and (HISTORY in retriever.options or not _HISTORY.search(json.dumps(retriever.json))):
        message = f"of canary '{spoken}' is not sent: write {{{{ {HISTORY} }}}} in request: json of the retriever"
        raise InvalidInputError([Problem(path=HISTORY, message=message)])
    return frozenset(names)


def _unsendable_headers(retriever: Retriever, queries: Sequence[ProbeQuery], varied: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each header that the variables of some query make unfit to be sent."""
    for name, value in retriever.headers.items():
        used = set(_PLACEHOLDER.findall(value)).intersection(varied)
        for item in queries if used else ():
            try:
                header_line(name, fill_placeholders(value, {**retriever.options, **item.vars}))
            except ValueError:
                options = ", ".join(f"'{one}'" for one in sorted(used))
                yield f"{options} of canary '{item.key}' cannot be sent in the header {name}: use Latin-1 characters"
                break


def compile_retriever(retriever: Retriever, k: int, varied: Collection[str] = ()) -> Plan:
    """Return what is the same for all probes of a run; raises InvalidInputError with everything wrong.

    `varied`: options that some of the queries set for themselves, which are filled in with each.
    """
    fixed = {name: value for name, value in retriever.options.items() if name not in varied}
    attempt = ProblemCollector()
    problems = attempt.problems
    if retriever.method not in METHODS:
        problems.append(Problem(path="method", message=f"must be one of {', '.join(METHODS)}"))
    placeholders = placeholder_names(retriever)
    url = attempt("url", partial(url_template, retriever.url, retriever.query_parameters, placeholders))
    body = None
    if retriever.json is not None:
        names_in_body = (*placeholders, HISTORY)
        body = attempt("json", partial(json_template, retriever.json, names_in_body, tuple(retriever.options)))
    names = frozenset(name.lower() for name in retriever.headers)
    problems += [
        Problem(path=f"headers.{name}", message="is set by the transport") for name in sorted(names & OWN_HEADERS)
    ]
    defaults = {name: value for name, value in _DEFAULT_HEADERS.items() if name not in names}
    own = {name: fill_placeholders(value, fixed) for name, value in retriever.headers.items()}
    of_queries = tuple((name, value) for name, value in own.items() if set(_PLACEHOLDER.findall(value)) & set(varied))
    lines = [
        attempt(f"headers.{name}", partial(header_line, name, value))
        for name, value in (*defaults.items(), *own.items())
        if (name, value) not in of_queries
    ]
    lookup = None
    if retriever.lookup is not None:
        lookup = attempt("lookup", partial(_lookup, retriever.lookup, retriever.options))
    reader = attempt("response", partial(compile_reader, retriever, k))
    if url is None or reader is None or problems:
        raise InvalidInputError(problems)
    return Plan(
        url=url.bind(k=k, **fixed),
        body=None if body is None else body.bind(k=k, **fixed),
        options={name: value for name, value in retriever.options.items() if name in varied},
        headers=(*(line for line in lines if line is not None), b"expect:"),
        varied_headers=of_queries,
        header_names=names,
        lookup=lookup,
        reader=reader,
    )


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the placeholders of these names filled; others stay."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def placeholder_names(retriever: Retriever) -> tuple[str, ...]:
    """Names that the templates of a retriever may hold."""
    looked_up = () if retriever.lookup is None else (retriever.lookup.name,)
    embedded = () if retriever.embedder is None else ("vector",)
    return ("query", "k", *retriever.options, *looked_up, *embedded)


def needs_vector(retriever: Retriever) -> bool:
    """Whether its templates hold the vector of the query; an embedder may also serve the scorer alone."""
    templates = json.dumps([retriever.url, dict(retriever.query_parameters), retriever.json])
    return retriever.embedder is not None and bool(
        _VECTOR.search(templates) or (retriever.sql is not None and _SQL_VECTOR.search(retriever.sql))
    )


def compile_reader(retriever: Retriever, k: int) -> Reader:
    """Return the reader of its responses; raises ValueError naming the field that is wrong."""
    if retriever.writes:
        return WriteReader()
    if retriever.reads is not None:
        return FactReader(retriever.reads)
    of_the_reranker = retriever.scorer.kind is ScorerKind.RERANK
    return Reader(
        retriever.response,
        k,
        scale=None if of_the_reranker else retriever.scorer.scale,
        decimals=decimals_of(retriever.score_precision),
    )


def build_requests(
    plan: Plan,
    context: ProbeContext,
    queries: Sequence[ProbeQuery],
    user_agent: str,
    vectors: Mapping[str, Sequence[float]],
) -> Iterator[Request]:
    """Yield one request per query, as they are drawn."""
    retriever = context.retriever
    headers = request_headers(plan, context, user_agent)
    same = context.trace is None and not plan.varied_headers
    url = None if plan.url.names else plan.url.render().decode()
    nothing = b"" if retriever.method in {"POST", "PUT", "PATCH"} else None
    for item in queries:
        values = plan.values_of(item, vectors)
        yield Request(
            tag=item.position,
            url=plan.url.render(**values).decode() if url is None else url,
            method=retriever.method,
            headers=headers if same else request_headers(plan, context, user_agent, item),
            body=nothing if plan.body is None else plan.body.render(**values),
            timeout_seconds=retriever.timeout_seconds,
            max_body_bytes=retriever.max_body_bytes,
            retries=retriever.retries,
            wants_headers=plan.reader.wants_headers or context.shows,
        )


def lookup_request(lookup: CompiledLookup, plan: Plan, context: ProbeContext, user_agent: str) -> Request:
    """Return the request of the lookup."""
    retriever = context.retriever
    return Request(
        url=lookup.url.render().decode(),
        method="GET",
        headers=request_headers(plan, context, user_agent),
        timeout_seconds=retriever.timeout_seconds,
        max_body_bytes=retriever.max_body_bytes,
        retries=retriever.retries,
    )


def request_headers(
    plan: Plan, context: ProbeContext, user_agent: str, item: ProbeQuery | None = None
) -> tuple[bytes, ...]:
    """Return the header lines of a request: program, run, and trace of the run or of the probe of `item`."""
    headers = plan.headers if item is None else plan.headers_of(item)
    parent = None if item is None or context.trace is None else context.trace.begin(item)
    if "user-agent" not in plan.header_names:
        headers = (*headers, header_line("user-agent", f"{user_agent} (+run {context.run_id})"))
    if "traceparent" not in plan.header_names:
        run = traceparent(context.run_id) if context.trace is None else context.trace.traceparent
        headers = (*headers, f"traceparent: {parent or run}".encode())
    return headers


def traceparent(run_id: str) -> str:
    """W3C Trace Context of a run: the trace and the span its probes descend from; ids are never zero."""
    run = blake2b(run_id.encode(), digest_size=24).hexdigest()
    return f"00-{run[:32]}-{run[32:]}-01"


def _lookup(lookup: Lookup, options: Mapping[str, str]) -> CompiledLookup:
    url = url_template(lookup.url, {}, tuple(options))
    return CompiledLookup(url=url.bind(**options), path=Path.of("lookup", lookup.path))


_VECTOR = re.compile(r"\{\{\s*vector\s*\}\}")
_HISTORY = re.compile(rf"\{{\{{\s*{HISTORY}\s*\}}\}}")
_SQL_VECTOR = re.compile(r"(?<!:):vector\b")  # `::vector` is a cast
_DEFAULT_HEADERS = {"accept": "application/json", "content-type": "application/json"}
