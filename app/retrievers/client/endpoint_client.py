"""Client of services beside retrievers: credentials, limits and attempts for embedders, rerankers, judges, answerers.

Which response is a failure is decided in `responses`; what the services say is read by who asks them.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from http import HTTPStatus

from app.base.addresses import AddressPolicy, Endpoint, OAuth2
from app.base.errors import InvalidInputError, Problem
from app.base.limits import Limits, Peer
from app.base.net.transfer import Request, header_line
from app.base.net.transport import exchange
from app.base.values import Outcome, Value, field
from app.retrievers.client.credentials import CredentialError, Keyring, masked
from app.retrievers.client.responses import response_problem, with_utf8_body

CONCURRENCY = 4
"""Requests to one service at a time, over everything that asks it: they are heavy, and other people's."""
RETRIES = 1
PATIENCE_SECONDS = 30.0
"""For how long a service that refuses every request by 429 is asked again, where nobody says otherwise."""
MAX_ANSWER_BYTES = 64_000_000
"""Of one answer: 256 vectors of 4,096 numbers with all their digits take 25 MB."""


class CallOutcome(Value):
    """Response to one body, or why there is none. `number` is the body's place."""

    number: int
    body: bytes = b""
    http_status: int | None = None
    problem: tuple[Outcome, str] | None = None
    """Outcome and one sentence for people, without a secret or a piece of a body; None = there is an answer to read."""
    latency_seconds: float = 0.0


class EndpointClient(Value):
    """Client of services beside retrievers, with their credentials."""

    policy: AddressPolicy
    keyring: Keyring
    user_agent: str
    max_body_bytes: int = MAX_ANSWER_BYTES
    limits: Limits = field(default_factory=Limits)

    def ask(
        self, endpoint: Endpoint, bodies: Sequence[bytes], *, patience: float = PATIENCE_SECONDS
    ) -> Generator[CallOutcome | None, None, None]:
        """Post every body and yield what comes of each, as it comes; whatever the service does is part of that.

        Yields None where nothing came for a while, so that the caller may stop; closing it cancels the rest. A token
        that was refused is fetched anew, once. What is refused by 429, or 503 with `Retry-After`, is sent again until
        the service has accepted nothing for `patience` in seconds. Raises InvalidInputError for an endpoint that cannot
        be asked.
        """
        lines = self._lines(endpoint)
        unauthorized_numbers: list[int] = []
        with closing(self._round(endpoint, lines, dict(enumerate(bodies)), patience)) as answers:
            for call in answers:
                unauthorized = call is not None and call.http_status == HTTPStatus.UNAUTHORIZED
                if call is not None and unauthorized and isinstance(endpoint.auth, OAuth2):
                    unauthorized_numbers.append(call.number)
                else:
                    yield call
        if unauthorized_numbers:
            self.keyring.forget(endpoint.auth)
            with closing(
                self._round(endpoint, lines, {number: bodies[number] for number in unauthorized_numbers}, patience)
            ) as answers:
                yield from answers

    def _round(
        self, endpoint: Endpoint, lines: tuple[bytes, ...], bodies: dict[int, bytes], patience: float
    ) -> Generator[CallOutcome | None, None, None]:
        if not bodies:
            return
        try:
            auth = self.keyring.request_auth(endpoint.auth, endpoint.tls, endpoint.headers)
        except CredentialError as error:
            problem = error.outcome, error.detail
            yield from (CallOutcome(number=number, http_status=error.http_status, problem=problem) for number in bodies)
            return
        failed = False
        requests = (
            Request(
                tag=number,
                url=endpoint.url,
                headers=lines,
                body=body,
                timeout_seconds=endpoint.timeout_seconds,
                max_body_bytes=self.max_body_bytes,
                retries=0 if failed else RETRIES,  # drawn while answers come in: one that hangs is not waited for twice
            )
            for number, body in bodies.items()
        )
        exchanged = exchange(
            requests,
            policy=self.policy,
            concurrency=CONCURRENCY,
            auth=auth,
            peer=Peer(limits=self.limits, name=f"service at {endpoint.url}", patience=patience),
        )
        with closing(exchanged) as batches:
            for batch in batches:
                if not batch:
                    yield None
                for number, received in batch:
                    failed = failed or received.failure is not None
                    response = with_utf8_body(received)
                    reason = response_problem(response)
                    yield CallOutcome(
                        number=number,
                        body=response.body,
                        http_status=response.status,
                        problem=None if reason is None else (reason[0], masked(reason[1], auth.secrets)),
                        latency_seconds=response.latency_seconds,
                    )

    def _lines(self, endpoint: Endpoint) -> tuple[bytes, ...]:
        names = {name.lower() for name in endpoint.headers}
        defaults = {"accept": "application/json", "content-type": "application/json", "user-agent": self.user_agent}
        fields = {name: value for name, value in defaults.items() if name not in names} | dict(endpoint.headers)
        try:
            return (*(header_line(name, value) for name, value in fields.items()), b"expect:")
        except ValueError as error:
            raise InvalidInputError([Problem(path="headers", message=str(error))]) from None
