"""The ping to a monitor of monitors, such as healthchecks.io: one GET, within the address policy of hooks."""

from dataclasses import dataclass, field
from http import HTTPStatus

from app.base.addresses import AddressPolicy
from app.base.net.transport import send_one
from app.base.net.wire import Request, header_line

_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinger:
    """Pings an address, which is a secret: anybody who has it could ping instead."""

    url: str = field(repr=False)
    policy: AddressPolicy
    user_agent: str

    def __call__(self) -> str | None:
        """Ping once: None = it was taken, else a sentence why not, without the address."""
        request = Request(
            url=self.url,
            method="GET",
            headers=(header_line("user-agent", self.user_agent),),
            timeout_seconds=_TIMEOUT_SECONDS,
            max_body_bytes=1_000_000,
        )
        response = send_one(request, policy=self.policy)
        if response.failure is not None:
            return response.detail or str(response.failure)
        if response.status is None or response.status >= HTTPStatus.MULTIPLE_CHOICES:
            return f"the receiver answered HTTP {response.status}"
        return None
