"""Which response counts as a failed probe, and what is said of it: by its status, by its exchange, or by its own words.

Where an answer says itself that it holds an error or is not whole, `check_signs` raises; `answer_fields`, which reads
it, finds the values and raises for shapes that are not mapped. Below: what a server says of its failure, and the
charset of a response. Nothing is asked here; secrets are masked by `credentials`.
"""

import codecs
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from html import unescape
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from app.base.net.transfer import OUTCOMES, Failure, Response
from app.base.texts import excess_of_answer
from app.base.values import Answer, Outcome, Step, replace
from app.retrievers.client.credentials import masked


def failure_of(response: Response, secrets: Iterable[str]) -> Answer | None:
    """Return the failed answer that a response is by its status or by how the exchange ended; None = it can be read."""
    problem = response_problem(response)
    if problem is None:
        return None
    answer = failed_answer(problem[0], masked(problem[1], secrets), response.status, response.latency_seconds)
    answer = answer if response.cache_sign is None else replace(answer, cache_sign=response.cache_sign)
    return with_refusal(
        replace(answer, slowing=response.slowing),
        refused_seconds=response.refused_seconds,
        retry_after_seconds=response.retry_after_seconds,
    )


def response_problem(response: Response) -> tuple[Outcome, str] | None:
    """Return outcome and sentence where a response cannot be read; None = it can."""
    status = response.status
    if status is not None and status not in _SUCCESSFUL:
        return Outcome.REFUSED, _refusal(status, response)
    if response.failure is not None:
        return OUTCOMES[response.failure], response.detail or "the exchange failed"
    return None


_SUCCESSFUL = range(HTTPStatus.OK, HTTPStatus.MULTIPLE_CHOICES)


def _refusal(status: int, response: Response) -> str:
    try:
        status_text = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        status_text = str(status)
    followed = ""
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        target = _target(response.redirect_url)
        followed = (
            "; redirects are not followed" if target is None else f"; redirects to {target}, which is not followed"
        )
    wait, refused = response.retry_after_seconds or 0.0, response.refused_seconds or 0.0
    waits = f"; asked to be left alone for {wait:,.0f} s" if wait else ""
    if refused >= 1 and refused >= wait:
        waits = f"; refused every request for {refused:,.0f} s"
    message = None if status < HTTPStatus.BAD_REQUEST else message_of_body(response.body)
    return f"answered {status_text}{followed}{waits}{quoted(message)}"


def _target(url: str | None) -> str | None:
    """Return the target of a redirect without user, query and fragment, which may hold secrets."""
    try:
        parts = urlsplit(clean_message(url or "") or "")
        host = parts.hostname
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return None
    if not host:
        return None
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path}"


def with_refusal(answer: Answer, *, refused_seconds: float | None, retry_after_seconds: float | None) -> Answer:
    """Return an answer with why its retriever refuses for longer than the run waits; `refused_seconds` None = no."""
    if refused_seconds is None:
        return answer
    if (retry_after_seconds or 0.0) > refused_seconds:
        return replace(answer, retry_after_seconds=retry_after_seconds)
    return replace(answer, refused_seconds=refused_seconds)


def failed_answer(
    outcome: Outcome, detail: str, http_status: int | None, latency_seconds: float = 0.0, *, step: Step = Step.RETRIEVER
) -> Answer:
    """Return the answer of a probe without a measurement."""
    return Answer(outcome=outcome, latency_seconds=latency_seconds, http_status=http_status, detail=detail, step=step)


class MalformedError(Exception):
    """The response does not have the mapped shape; the message says where, and may quote the server's own words."""

    outcome = Outcome.MALFORMED


class PartialAnswerError(MalformedError):
    """The response says itself that it holds an error or is not whole."""

    outcome = Outcome.PARTIAL


class Sign(Protocol):
    """An expression of a mapping whose value says that an answer holds an error, or is not whole."""

    @property
    def text(self) -> str:
        """The expression."""
        ...

    @property
    def steps(self) -> tuple[str, ...] | None:
        """Its field names where it is a plain path."""
        ...


def check_signs(
    answer: Mapping[str, Any], *, errors: Iterable[tuple[Sign, Any]], partial: Iterable[tuple[Sign, Any]]
) -> None:
    """Raise PartialAnswerError where an answer says itself that it holds an error or is not whole.

    Each sign comes with its value in the answer.
    """
    for sign, value in errors:
        if is_sign(sign, value):
            message = (message_of(value) if isinstance(value, str | dict | list) else None) or message_beside(answer)
            raise PartialAnswerError(f"answered with an error{quoted(message or _sign_text(sign, value))}")
    for sign, value in partial:
        if is_sign(sign, value):
            raise PartialAnswerError(f"answered in part, {_sign_text(sign, value)}{quoted(message_beside(answer))}")


def message_beside(answer: Mapping[str, Any]) -> str | None:
    """Return the message of an answer with a successful status, or of the first of its lists whose items have one.

    Only fields of errors are read: everything else may be a text that was retrieved.
    """
    message = message_of({name: answer.get(name) for name in _MESSAGES})
    if message is None:
        items = [one for value in answer.values() if isinstance(value, list) for one in value[:20]]
        message = message_of([{"error": one.get("error")} for one in items if isinstance(one, dict)])
    return message


def _sign_text(sign: Sign, value: Any) -> str:
    name = sign.steps[-1] if sign.steps else ""
    if name in _TALLIES and isinstance(value, dict):
        return f"{sign.text}.{_shortfall(value) or 'failed'}"
    shown = value if isinstance(value, str | int | float) else None
    return sign.text if shown is None else f"{sign.text} is {str(shown).lower()[:40]}"


def is_sign(sign: Sign, value: Any) -> bool:
    """Whether the value of a sign is one: of `success` and `ok` false, of others what is not empty, zero or "ok".

    Of a tally of shards or clusters it is that some did not answer.
    """
    name = sign.steps[-1] if sign.steps else ""
    if name in _GOOD_FLAGS or value is None or value is False:
        return name in _GOOD_FLAGS and value is False
    if isinstance(value, str):
        return value.strip().lower() not in _NO_ERROR
    if isinstance(value, int | float) and value is not True:
        return value != 0 and name not in {"error", "errors"}
    if isinstance(value, dict):
        if name in _TALLIES:
            return _shortfall(value) is not None
        return any(one not in (None, False, 0, "") for one in value.values())
    return bool(value)


def _shortfall(tally: dict[str, Any]) -> str | None:
    """Return which count of a tally of shards or clusters says that not all of them answered; None = all did.

    A shard without any copy that could be asked is not among the failed ones: only `successful` falls short of `total`.
    Shards that were skipped, since nothing in them could match, count as successful; skipped clusters do not.
    """
    failed = tally.get("failed")
    if isinstance(failed, int) and failed > 0:
        return f"failed is {failed}"
    total, successful = tally.get("total"), tally.get("successful")
    if isinstance(total, int) and isinstance(successful, int) and successful < total:
        return f"successful is {successful} of {total}"
    return None


_MESSAGES = (
    "error",
    "errors",
    "root",
    "_shards",
    "error_message",
    "errorMessage",
    "message",
    "detail",
    "msg",
    "reason",
)
_GOOD_FLAGS = frozenset({"success", "ok"})
_TALLIES = frozenset({"_shards", "_clusters"})
_NO_ERROR = frozenset({"", "ok", "none", "null", "success", "no error", "false", "0", "200"})


def message_of_body(body: bytes) -> str | None:
    """Return the message in a body of any type: JSON, HTML, XML or plain text; None where it says nothing."""
    part = body[:_MOST_BYTES]
    if not part.strip():
        return None
    if part is body or len(part) == len(body):
        try:
            if excess_of_answer(part) is None:
                return message_of(msgspec.json.decode(part))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    text = part.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if text.startswith("<"):
        title = _TITLE.search(text[:20_000])
        text = unescape(title[2]) if title else ""
    elif text[:1] in "{[\x00":
        return None
    return clean_message(text)


MAX_LENGTH = 300
_MOST_BYTES = 200_000
_MOST_LEVELS = 6


def message_of(value: Any) -> str | None:
    """Return the message in parsed JSON of an error response; None where none of the usual fields is there."""
    text = _find(value, _MOST_LEVELS)
    return None if text is None else clean_message(text)


def clean_message(text: str) -> str | None:
    """Return a text as one line of at most 300 characters that can be shown; None where nothing is left."""
    head = text[: 20 * MAX_LENGTH]
    shown = "".join(" " if unicodedata.category(one)[0] in "CZ" else one for one in head)
    line = " ".join(shown.replace("\ufffd", "?").split())
    if not line:
        return None
    return line if len(line) <= MAX_LENGTH else f"{line[: MAX_LENGTH - 1]}\u2026"


def quoted(message: str | None) -> str:
    """Return a message as the end of a sentence: `: “index not loaded”`; empty where there is none."""
    return "" if message is None else f": \u201c{message}\u201d"


def _find(value: Any, levels: int) -> str | None:
    if isinstance(value, str):
        return value if value.strip() else None
    if levels and isinstance(value, list):
        return next((found for one in value[:20] if (found := _find(one, levels - 1)) is not None), None)
    return _find_in_object(value, levels) if levels and isinstance(value, Mapping) else None


def _find_in_object(value: Mapping[str, Any], levels: int) -> str | None:
    for name in _NAMES:
        found = _find(value.get(name), levels - 1)
        if found is None:
            continue
        more = next((one for key in _MORE if key != name and isinstance(one := value.get(key), str) and one), None)
        is_label = name in {"error", "title", "code"} and isinstance(value[name], str)
        if is_label and more is not None and more != found:
            return f"{found}: {more}"
        return found if name != "msg" else _placed(value, found)
    return None


def _placed(value: Mapping[str, Any], message: str) -> str:
    """Return the message of a refused field with its place, as FastAPI gives them."""
    place = value.get("loc")
    return f"{'.'.join(map(str, place[:8]))}: {message}" if isinstance(place, list) and place else message


_NAMES = (
    *("error", "errors", "failures", "error_message", "errorMessage", "reason", "message", "detail", "details", "msg"),
    *("error_description", "summary", "title", "description", "type", "root", "_shards", "status"),
)


_MORE = ("message", "detail", "error_description", "reason", "msg")
_TITLE = re.compile(r"<(title|message|h1)[^>]*>([^<]*)</", re.IGNORECASE)


def with_utf8_body(response: Response) -> Response:
    """Return a response whose body is UTF-8, or one that failed as malformed and says why; status and body stay."""
    body = response.body
    if not body or response.failure is not None:
        return response
    name = _declared(response.content_type)
    if name is None and body[0] in b"{[" and b"\0" not in body[:4] and body.isascii():
        return response  # as nearly all are
    charset = json.detect_encoding(body) if name is None else _codec(name)
    if name is not None and charset == "utf-16" and body[:2] not in _MARKS:
        charset = "utf-16-be" if body[:1] == b"\0" else "utf-16-le"
    if charset in _UTF8 and body.isascii():
        return response
    try:
        if charset is not None and charset not in _UTF8:
            return replace(response, body=body.decode(charset).removeprefix("\ufeff").encode())
    except (UnicodeError, ValueError):
        pass
    try:
        body.decode()
    except UnicodeDecodeError:
        return replace(response, failure=Failure.MALFORMED, detail=_problem(name, charset))
    return response


def _declared(content_type: str) -> str | None:
    found = _CHARSET.search(content_type)
    return found[1].lower() if found else None


def _codec(name: str) -> str | None:
    """Return Python's name of a charset; None for what is unknown, or no charset though Python has it as a codec."""
    try:
        info = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    return info.name if info._is_text_encoding and info.name not in _NO_CHARSETS else None  # noqa: SLF001 - nothing public says it


def _problem(name: str | None, charset: str | None) -> str:
    if name is None:
        return "the answer is not UTF-8, and its Content-Type declares no other charset"
    if charset is None:
        return f"the answer's Content-Type declares the charset {name}, which is unknown, and it is not UTF-8"
    return f"the answer cannot be decoded as {name}, the charset that its Content-Type declares"


_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([\w.:+-]{1,40})", re.IGNORECASE | re.ASCII)
_UTF8 = frozenset({"utf-8", "utf-8-sig", "ascii"})
_MARKS = (b"\xff\xfe", b"\xfe\xff")
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "raw_unicode_escape", "undefined"}) | {
    *("unicode-escape", "unicode_escape", "utf-7", "mbcs", "oem", "palmos")
}


def without_surrogates(text: str) -> str:
    """Return a text with `?` for halves of characters, which cannot travel."""
    return text.encode(errors="replace").decode()
