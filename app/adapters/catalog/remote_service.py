"""A Coalmine service elsewhere, as the command line uses it: plan, apply and export over its REST API."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from typing_extensions import TypedDict

from app.adapters.catalog.trials import Trial
from app.adapters.transport import send_one
from app.adapters.wire import Request, Response, header_line
from app.domain.addresses import AddressPolicy
from app.domain.diagnosis.views import QualityReport, ReanchorDecision, ReanchorView
from app.domain.errors import (
    CoalmineError,
    ConfigurationError,
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    Problem,
    StoreUnavailableError,
    UnauthorizedError,
)

ANYWHERE = AddressPolicy(name="server", deny_private=False)
"""Whoever runs the command says where the service is."""
TIMEOUT_SECONDS = 120.0
MAX_BODY_BYTES = 100_000_000


class Server:
    """A service at `url`, asked with the API key where one is given.

    Every call raises an error of our tree where the service refuses or cannot be asked; no message holds the key.
    """

    def __init__(self, url: str, key: str | None, *, user_agent: str) -> None:
        parts = urlsplit(url)
        plain = not (parts.query or parts.fragment or "@" in parts.netloc)
        if parts.scheme not in {"http", "https"} or not parts.hostname or not plain:
            raise ConfigurationError("--server must be the address of a service, for example https://coalmine.example")
        self._url = url.rstrip("/")
        headers = {"user-agent": user_agent, "content-type": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        try:
            self._headers = tuple([header_line(name, value) for name, value in headers.items()])
        except ValueError as error:
            raise ConfigurationError("COALMINE_API_KEY cannot be a key: it is not one line of text") from error

    def import_documents(
        self, pages: list[dict[str, Any]], *, dry_run: bool
    ) -> tuple[list[Mapping[str, Any]], list[str]]:
        """Apply documents in one transaction, or say what that would change: `kind, name, action, fields, note`.

        Beside the changes it gives what there is to note of them; nothing, where the service is of an older release.
        """
        body = json.dumps(pages).encode()
        answer = self._ask("POST", f"/v1/import?dry_run={'true' if dry_run else 'false'}", body)
        try:
            told = json.loads(answer.body)
            changes: list[Mapping[str, Any]] = told["changes"]
            return changes, [str(line) for line in told.get("notes", ())]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CoalmineError(f"{self._url} did not answer as Coalmine does") from error

    def export(self) -> str:
        """Read everything in force as a canary file."""
        try:
            return self._ask("GET", "/v1/export", None).body.decode()
        except UnicodeDecodeError as error:
            raise CoalmineError(f"{self._url} did not answer as Coalmine does") from error

    def export_suite(self, form: str, suite: str | None) -> tuple[Mapping[str, str], list[str]]:
        """Read a suite as another tool's files: (texts by name, what they cannot hold)."""
        named = "" if suite is None else f"&suite={quote(suite, safe='')}"
        answer = self._ask("GET", f"/v1/export?format={form}{named}", None)
        try:
            told = json.loads(answer.body)
            return {str(name): str(text) for name, text in told["files"].items()}, [str(line) for line in told["notes"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CoalmineError(f"{self._url} did not answer as Coalmine does") from error

    def try_retriever(self, slug: str, wish: Mapping[str, Any]) -> dict[str, Any]:
        """Put one query to a retriever the service has; gives what came of it, see `POST /v1/retrievers/{slug}/try`."""
        answer = self._ask("POST", f"/v1/retrievers/{quote(slug, safe='')}/try", json.dumps(wish).encode())
        try:
            trial: dict[str, Any] = json.loads(answer.body)
            msgspec.convert(trial, Trial)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise CoalmineError(f"{self._url} did not answer as Coalmine does") from error
        return trial

    def rescore(self, check: str, since: str | None) -> Mapping[str, Any]:
        """Ask for a check's past runs to be judged by the judgments in force there; gives the re-scoring."""
        body = json.dumps({} if since is None else {"since": since}).encode()
        return self._rescoring("POST", f"/v1/checks/{quote(check, safe='')}/rescorings", body)

    def reanchors(self, check: str) -> list[ReanchorView]:
        """Read what is proposed in the place of judgments of a check, oldest first."""
        found: list[ReanchorView] = []
        path, after = f"/v1/checks/{quote(check, safe='')}/reanchors?state=proposed&limit=500", ""
        while True:
            page = self._reanchoring("GET", path + after, None, _ReanchorPage)
            found += page["items"]
            if not page["next"]:
                return found[::-1]
            after = f"&after={quote(page['next'], safe='')}"

    def decide_reanchors(self, check: str, wish: Mapping[str, Any]) -> ReanchorDecision:
        """Accept or reject proposals; see `POST /v1/checks/{slug}/reanchors`."""
        path = f"/v1/checks/{quote(check, safe='')}/reanchors"
        decided: ReanchorDecision = self._reanchoring("POST", path, json.dumps(wish).encode(), ReanchorDecision)
        return decided

    def _reanchoring(self, method: str, path: str, body: bytes | None, shape: Any) -> Any:
        try:
            return msgspec.convert(json.loads(self._ask(method, path, body).body), shape)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise CoalmineError(f"{self._url} did not answer as Coalmine does") from error

    def rescoring(self, rescoring_id: str) -> Mapping[str, Any]:
        """Read how far a re-scoring is."""
        return self._rescoring("GET", f"/v1/rescorings/{quote(rescoring_id, safe='')}", None)

    def quality(self, check: str) -> QualityReport:
        """Read the quality report of a check, see `GET /v1/checks/{slug}/quality`."""
        answer = self._ask("GET", f"/v1/checks/{quote(check, safe='')}/quality", None)
        try:
            return msgspec.convert(json.loads(answer.body), QualityReport)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise CoalmineError(f"{self._url} did not answer as Coalmine does") from error

    def _rescoring(self, method: str, path: str, body: bytes | None) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = json.loads(self._ask(method, path, body).body)
            str(found["id"]), str(found["status"]), int(found["progress"]["runs_done"])
        except (ValueError, KeyError, TypeError) as error:
            raise CoalmineError(f"{self._url} did not answer as Coalmine does") from error
        return found

    def _ask(self, method: str, path: str, body: bytes | None) -> Response:
        request = Request(
            url=self._url + path,
            method=method,
            headers=self._headers,
            body=body,
            timeout_seconds=TIMEOUT_SECONDS,
            max_body_bytes=MAX_BODY_BYTES,
        )
        answer = send_one(request, policy=ANYWHERE)
        if answer.failure is not None and (answer.status is None or answer.status < HTTPStatus.MULTIPLE_CHOICES):
            raise CoalmineError(f"{self._url} cannot be asked: {answer.detail or answer.failure}")
        if answer.status not in {HTTPStatus.OK, HTTPStatus.ACCEPTED}:
            raise self._refusal(answer)
        return answer

    def _refusal(self, answer: Response) -> CoalmineError:
        status = answer.status or 0
        try:
            problem = json.loads(answer.body)
            detail, errors = str(problem["detail"]), [_problem(one) for one in problem.get("errors", ())]
        except (ValueError, KeyError, TypeError, AttributeError):
            return CoalmineError(f"{self._url} answered {status}; is Coalmine there?")
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:
            return InvalidInputError(errors or [Problem(message=detail)])
        kind = _ERRORS.get(status, CoalmineError)
        return kind(f"{self._url} answered {status}: {detail}{_HINTS.get(status, '')}")


class _ReanchorPage(TypedDict):
    """A page of proposals."""

    items: list[ReanchorView]
    next: str | None


def _problem(told: Mapping[str, Any]) -> Problem:
    return Problem(message=str(told["message"]), path=str(told["path"]) if told.get("path") else None)


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
