"""Client of a Coalmine service for the command line: plan, apply, export and more over its REST API.

Whatever answers at an address need not be Coalmine, so answers are checked to have their shape.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NotRequired, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from typing_extensions import TypedDict

from app.annotation.views import CorpusView
from app.base.addresses import AddressPolicy
from app.base.errors import (
    CoalmineError,
    ConfigurationError,
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    Problem,
    StoreUnavailableError,
    UnauthorizedError,
)
from app.base.net.transfer import Request, Response, header_line
from app.base.net.transport import send_one
from app.comparison.views import ComparisonPage
from app.diagnosis.views import QualityReport, ReanchorDecision, ReanchorView
from app.traffic.domain import ReceivedTraffic, SuggestionView, TrafficView


class TriedRequest(TypedDict):
    """Request that was sent."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None


class TriedResponse(TypedDict):
    """Response that was received."""

    status: int | None
    body: str | None
    bytes: int


class Hit(TypedDict):
    """Hit as the mapping read it."""

    rank: int
    id: str
    document: str | None
    text: str | None
    score: float | None
    relevance: float | None
    updated: str | None


class Suggestion(TypedDict):
    """Another mapping."""

    hits: int
    reasons: dict[str, str]
    yaml: str


class Scored(TypedDict):
    """Source of relevance."""

    kind: str
    scale: NotRequired[str | None]


class Trial(TypedDict):
    """A trial; `remarks` came later than the rest."""

    retriever: str
    outcome: str
    detail: str | None
    http_status: int | None
    latency_seconds: float | None
    index_version: str | None
    request: TriedRequest | None
    response: TriedResponse | None
    hits: list[Hit]
    returned: int | None
    scorer: Scored
    top_score: float | None
    unscored: str | None
    suggestions: list[Suggestion]
    remarks: NotRequired[list[str]]


class CanaryState(TypedDict):
    """A state of a canary in a check; `until` and `last_run` are null while it holds."""

    verdict: str
    first_run: str
    last_run: str | None
    until: str | None
    ranking: list[str]


ANY_ADDRESS = AddressPolicy(name="server", deny_private=False)
TIMEOUT_SECONDS = 120.0
MAX_BODY_BYTES = 100_000_000

T = TypeVar("T")


class Server:
    """A service at `url`, called with the API key where one is given.

    Every call raises an error of our tree where the service refuses or cannot be reached; no message holds the key.
    """

    def __init__(self, url: str, key: str | None, *, user_agent: str) -> None:
        parts = urlsplit(url)
        plain = not (parts.query or parts.fragment or "@" in parts.netloc)
        if parts.scheme not in {"http", "https"} or not parts.hostname or not plain:
            raise ConfigurationError("--server must be the address of a service, for example https://coalmine.example")
        self._url = url.rstrip("/")
        headers = {"user-agent": user_agent}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        try:
            self._headers = tuple([header_line(name, value) for name, value in headers.items()])
        except ValueError as error:
            raise ConfigurationError("COALMINE_API_KEY cannot be a key: it is not one line of text") from error

    def import_documents(
        self, pages: list[dict[str, Any]], *, dry_run: bool
    ) -> tuple[list[Mapping[str, Any]], list[str]]:
        """Apply documents, or return what that would change (`kind, name, action, fields, note`), and notes."""
        answer = self._call("POST", f"/v1/import?dry_run={'true' if dry_run else 'false'}", _Changes, body=pages)
        return answer["changes"], answer.get("notes", [])

    def export(self) -> str:
        """Everything in force as a canary file."""
        try:
            return self._send("GET", "/v1/export", None).body.decode()
        except UnicodeDecodeError as error:
            raise self._foreign() from error

    def export_suite(self, form: str, suite: str | None) -> tuple[Mapping[str, str], list[str]]:
        """Return a suite as another tool's files: (texts by name, what they cannot hold)."""
        suite_query = "" if suite is None else f"&suite={_quoted(suite)}"
        answer = self._call("GET", f"/v1/export?format={form}{suite_query}", _Files)
        return answer["files"], answer["notes"]

    def try_retriever(self, slug: str, request: Mapping[str, Any]) -> Trial:
        """Send one query to a retriever of the service, see `POST /v1/retrievers/{slug}/try`."""
        return self._call("POST", f"/v1/retrievers/{_quoted(slug)}/try", Trial, body=request)

    def definition(self, kind: str, slug: str) -> Mapping[str, Any]:
        """Return a definition of a kind, `checks` or `retrievers`, as readers see it."""
        return self._call("GET", f"/v1/{_quoted(kind)}/{_quoted(slug)}", _Slug)

    def find_canaries(self, suite: str, question: str) -> list[Mapping[str, Any]]:
        """Return the canary of a suite that has this key or, else, all with this query."""
        words, after = question.split(), ""
        same_query: list[Mapping[str, Any]] = []
        while True:
            path = f"/v1/suites/{_quoted(suite)}/canaries?limit=500{after}"
            page = self._call("GET", path, _CanaryPage)
            for canary in page["items"]:
                if canary["key"] == question:
                    return [canary]
                if canary["query"].split() == words:
                    same_query.append(canary)
            if not page["next"]:
                return same_query
            after = f"&after={_quoted(page['next'])}"

    def canary_history(self, check: str, key: str) -> list[CanaryState]:
        """Return the states a canary of a check went through, newest first."""
        path = f"/v1/checks/{_quoted(check)}/canaries/{_quoted(key)}/history?limit=500"
        return self._call("GET", path, _CanaryHistory)["items"]

    def rescore(self, check: str, since: str | None) -> Mapping[str, Any]:
        """Start re-scoring a check's past runs by the judgments in force there."""
        body = {} if since is None else {"since": since}
        return self._call("POST", f"/v1/checks/{_quoted(check)}/rescorings", _Rescoring, body=body)

    def rescoring(self, rescoring_id: str) -> Mapping[str, Any]:
        """Progress of a re-scoring."""
        return self._call("GET", f"/v1/rescorings/{_quoted(rescoring_id)}", _Rescoring)

    def reanchors(self, check: str) -> list[ReanchorView]:
        """Proposals in the place of judgments of a check, oldest first."""
        views: list[ReanchorView] = []
        path, after = f"/v1/checks/{_quoted(check)}/reanchors?state=proposed&limit=500", ""
        while True:
            page = self._call("GET", path + after, _ReanchorPage)
            views += page["items"]
            if not page["next"]:
                return views[::-1]
            after = f"&after={_quoted(page['next'])}"

    def decide_reanchors(self, check: str, request: Mapping[str, Any]) -> ReanchorDecision:
        """Accept or reject proposals; see `POST /v1/checks/{slug}/reanchors`."""
        return self._call("POST", f"/v1/checks/{_quoted(check)}/reanchors", ReanchorDecision, body=request)

    def quality(self, check: str) -> QualityReport:
        """Quality report of a check, see `GET /v1/checks/{slug}/quality`."""
        return self._call("GET", f"/v1/checks/{_quoted(check)}/quality", QualityReport)

    def compare(self, a: str, b: str, *, winner: str | None = None, limit: int) -> ComparisonPage:
        """Comparison of two runs, checks or retrievers, see `GET /v1/compare`."""
        of_winner = "" if winner is None else f"&winner={_quoted(winner)}"
        path = f"/v1/compare?a={_quoted(a)}&b={_quoted(b)}&limit={limit}{of_winner}"
        return self._call("GET", path, ComparisonPage)

    def send_traffic(self, suite: str, retriever: str, lines: str, *, key: str) -> ReceivedTraffic:
        """Add queries of users as JSON lines, once per `key`; see `POST /v1/suites/{suite}/traffic`."""
        path = f"/v1/suites/{_quoted(suite)}/traffic?retriever={_quoted(retriever)}"
        return self._call("POST", path, ReceivedTraffic, lines=lines, idempotency_key=key)

    def add_texts(self, corpus: str, lines: str) -> CorpusView:
        """Add texts as JSON lines to a corpus; see `POST /v1/corpora/{corpus}`."""
        return self._call("POST", f"/v1/corpora/{_quoted(corpus)}", CorpusView, lines=lines)

    def slugs(self, kind: str) -> list[str]:
        """Return the first slugs of a kind, `suites` or `retrievers`."""
        return [one["slug"] for one in self._call("GET", f"/v1/{_quoted(kind)}", _SlugPage)["items"]]

    def traffic(self, suite: str) -> list[TrafficView]:
        """Return the traffic of a suite by retriever."""
        return self._call("GET", f"/v1/suites/{_quoted(suite)}/traffic", _TrafficPage)["items"]

    def suggestions(self, suite: str, retriever: str, *, limit: int) -> list[SuggestionView]:
        """Return queries that no canary stands for, see `GET /v1/suites/{suite}/suggestions`."""
        path = f"/v1/suites/{_quoted(suite)}/suggestions?retriever={_quoted(retriever)}&limit={limit}"
        return self._call("GET", path, _SuggestionPage)["items"]

    def _call(
        self,
        method: str,
        path: str,
        shape: type[T],
        *,
        body: Any = None,
        lines: str | None = None,
        idempotency_key: str | None = None,
    ) -> T:
        """Send JSON, or JSON lines, and return the answer, checked to have this shape; what else it holds stays."""
        content = None if body is None else json.dumps(body).encode()
        if lines is not None:
            content = lines.encode()
        kind = "application/json" if lines is None else "application/x-ndjson"
        answer = self._send(method, path, content, idempotency_key=idempotency_key, kind=kind)
        try:
            document: T = json.loads(answer.body)
            msgspec.convert(document, shape)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise self._foreign() from error
        return document

    def _foreign(self) -> CoalmineError:
        return CoalmineError(f"{self._url} did not answer as Coalmine does")

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        *,
        idempotency_key: str | None = None,
        kind: str = "application/json",
    ) -> Response:
        extra = [header_line("content-type", kind)]
        if idempotency_key is not None:
            extra.append(header_line("idempotency-key", idempotency_key))
        request = Request(
            url=self._url + path,
            method=method,
            headers=(*self._headers, *extra),
            body=body,
            timeout_seconds=TIMEOUT_SECONDS,
            max_body_bytes=MAX_BODY_BYTES,
        )
        answer = send_one(request, policy=ANY_ADDRESS)
        if answer.failure is not None and (answer.status is None or answer.status < HTTPStatus.MULTIPLE_CHOICES):
            raise CoalmineError(f"{self._url} cannot be asked: {answer.detail or answer.failure}")
        if answer.status not in {HTTPStatus.OK, HTTPStatus.ACCEPTED}:
            raise self._error_of(answer)
        return answer

    def _error_of(self, answer: Response) -> CoalmineError:
        status = answer.status or 0
        try:
            problem = json.loads(answer.body)
            detail, errors = str(problem["detail"]), [_read_problem(one) for one in problem.get("errors", ())]
        except (ValueError, KeyError, TypeError, AttributeError):
            return CoalmineError(f"{self._url} answered {status}; is Coalmine there?")
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:
            return InvalidInputError(errors or [Problem(message=detail)])
        kind = _ERRORS.get(status, CoalmineError)
        return kind(f"{self._url} answered {status}: {detail}{_HINTS.get(status, '')}")


def _quoted(name: str) -> str:
    return quote(name, safe="")


class _Changes(TypedDict):
    """Changes of an import."""

    changes: list[Mapping[str, Any]]
    notes: NotRequired[list[str]]


class _Files(TypedDict):
    """Files of an export."""

    files: dict[str, str]
    notes: list[str]


class _Rescoring(TypedDict):
    """A re-scoring, as far as every release has it."""

    id: str
    status: str
    progress: dict[str, int | None]


class _ShownCanary(TypedDict):
    """A canary, as far as it is looked for."""

    key: str
    query: str


class _CanaryPage(TypedDict):
    """A page of canaries."""

    items: list[_ShownCanary]
    next: str | None


class _CanaryHistory(TypedDict):
    """The states of a canary."""

    items: list[CanaryState]


class _SuggestionPage(TypedDict):
    """A page of suggestions."""

    items: list[SuggestionView]
    next: str | None


class _ReanchorPage(TypedDict):
    """A page of proposals."""

    items: list[ReanchorView]
    next: str | None


def _read_problem(document: Mapping[str, Any]) -> Problem:
    return Problem(message=str(document["message"]), path=str(document["path"]) if document.get("path") else None)


_ERRORS: Mapping[int, type[CoalmineError]] = {
    HTTPStatus.UNAUTHORIZED: UnauthorizedError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.SERVICE_UNAVAILABLE: StoreUnavailableError,
}
_HINTS: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: " (set COALMINE_API_KEY)",
    HTTPStatus.FORBIDDEN: " (applying needs a key with scope admin, trying one with write, exporting one with read)",
}


class _Slug(TypedDict):
    """Anything that has a slug."""

    slug: str


class _SlugPage(TypedDict):
    """A page of a list of definitions."""

    items: list[_Slug]


class _TrafficPage(TypedDict):
    """The traffic of a suite."""

    items: list[TrafficView]
