"""Turns responses into answers: transport failure, status, then the mapped shape. Sends nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.base.net.wire import Request, RequestAuth, Response
from app.base.values import Answer, Exchange, Outcome, Step
from app.retrievers.client.endpoints import response_problem
from app.retrievers.client.jmespath_paths import MalformedError
from app.retrievers.client.masking import MASK, masked
from app.retrievers.client.response_mapping import Reader, Reading
from app.retrievers.client.server_messages import without_secrets

CACHE_BYTES = 48_000_000
"""How large the bodies are, together, whose readings are remembered from one run to the next, of all retrievers."""
SHOWN_CHARACTERS = 200_000
"""How much of a body goes into an exchange: enough to suggest a mapping from; people are shown less."""

_OK = Outcome.OK  # a member of an enumeration is slow to look up


def read_answer(response: Response, reader: "Reader | CachingReader", secrets: Sequence[str] = ()) -> Answer:
    """Return the answer of a response: first its failure, then its status, then its shape.

    What is quoted of the server is without `secrets`.
    """
    status, seconds = response.status, response.latency_seconds
    problem = response_problem(response)
    if problem is not None:
        answer = failed_answer(problem[0], without_secrets(problem[1], secrets), status, seconds)
        answer = answer if response.cache_sign is None else replace(answer, cache_sign=response.cache_sign)
        return with_refusal(
            replace(answer, slowing=response.slowing),
            refused_seconds=response.refused_seconds,
            retry_after_seconds=response.retry_after_seconds,
        )
    try:
        reading = reader.read(response.body, response.headers)
    except MalformedError as error:
        return failed_answer(error.outcome, without_secrets(str(error), secrets), status, seconds)
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


def with_refusal(answer: Answer, *, refused_seconds: float | None, retry_after_seconds: float | None) -> Answer:
    """Return an answer with why its retriever refuses for longer than the run waits; `refused_seconds` None = no."""
    if refused_seconds is None:
        return answer
    if (retry_after_seconds or 0.0) > refused_seconds:
        return replace(answer, retry_after_seconds=retry_after_seconds)
    return replace(answer, refused_seconds=refused_seconds)


def failed_answer(
    outcome: Outcome,
    detail: str,
    http_status: int | None,
    latency_seconds: float = 0.0,
    *,
    step: Step = Step.RETRIEVER,
) -> Answer:
    """Return the answer of a probe without a measurement."""
    return Answer(outcome=outcome, latency_seconds=latency_seconds, http_status=http_status, detail=detail, step=step)


def shown_exchange(request: Request, response: Response, auth: RequestAuth) -> Exchange:
    """Return request and response for people: bodies capped, every secret masked."""
    secrets = auth.secrets
    # What is a secret as a whole is masked as a whole: in a text it could not be told from a word when it is short.
    lines = [(*_split_line(line), False) for line in request.headers] + [
        (*_split_line(line), True) for line in auth.headers
    ]
    body = response.body[: 4 * SHOWN_CHARACTERS].decode("utf-8", errors="replace")
    request_body = request.body.decode("utf-8", errors="replace") if request.body else None
    return Exchange(
        method=request.method,
        url=masked(request.url, secrets) + _masked_query(request.url, auth.query),
        request_headers={
            name: MASK if secret or value in secrets else masked(value, secrets)
            for name, value, secret in lines
            if value
        },
        request_body=None if request_body is None else masked(request_body, secrets)[:SHOWN_CHARACTERS],
        http_status=response.status,
        response_headers={
            name: MASK if name == "set-cookie" else masked(value, secrets) for name, value in response.headers.items()
        },
        response_body=masked(body, secrets)[:SHOWN_CHARACTERS] if response.status is not None else None,
        response_bytes=len(response.body),
    )


def _split_line(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode("latin-1").partition(":")
    return name, value.strip()


def _masked_query(url: str, query: Mapping[str, str]) -> str:
    added = "&".join(f"{name}={MASK}" for name in query)
    return f"{'&' if '?' in url else '?'}{added}" if added else ""


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
