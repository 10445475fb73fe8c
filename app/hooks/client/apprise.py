"""Hooks of Apprise, an optional extra, sent by a process of their own: Apprise opens connections itself.

In that process no connection is made that the address policy does not permit, no program is started, and no proxy of
the environment is used; its end is sure. The URL, a secret, goes there through a pipe.
"""

import json
import os
import subprocess
import sys
import time
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import app
from app.base.addresses import AddressPolicy
from app.hooks.client.apprise_process import AppriseRequest
from app.hooks.domain import Hook, HookError, Message, Receipt

STARTUP_SECONDS = 10.0
"""How long the process may take on top of the hook's time-out: Apprise alone takes a second to load."""
_PASSED_VARIABLES = ("PATH", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "SYSTEMROOT")


def send_apprise(
    hook: Hook,
    message: Message,
    now: datetime,  # noqa: ARG001 - of `Send`
    *,
    policy: AddressPolicy,
    package: str = "apprise",
) -> Receipt:
    """Attempt once; see `Send`. Messages of Apprise are dropped: they may hold tokens."""
    if find_spec(package) is None:
        detail = "Apprise is not installed here: pip install 'coalmine[apprise]'; nothing was sent"
        return Receipt(ok=False, error=HookError.CONFIGURATION, detail=detail, untaken=True)
    started = time.monotonic()
    request: AppriseRequest = {
        "url": hook.url,
        "message": json.loads(message.body),
        "allow": [str(entry) for entry in policy.allow],
        "deny_private": policy.deny_private,
        "only_allowed": policy.only_allowed,
    }
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "app.hooks.client.apprise_process"],
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            timeout=hook.timeout_seconds + STARTUP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        seconds = time.monotonic() - started
        detail = "the service did not answer in time"
        return Receipt(ok=False, error=HookError.TIMEOUT, detail=detail, latency_seconds=seconds)
    return _receipt(ended.stdout, time.monotonic() - started)


def _environment() -> dict[str, str]:
    """Environment of the process: no proxies, and no files that could hold other credentials."""
    variables = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    return {**variables, "PYTHONPATH": str(Path(app.__file__).parents[1]), "NETRC": os.devnull, "HOME": "/nonexistent"}


def _receipt(output: bytes, seconds: float) -> Receipt:
    try:
        output_document = json.loads(output)
        outcome, reason = str(output_document["outcome"]), str(output_document["reason"])
    except (ValueError, KeyError, TypeError):
        outcome, reason = "broken", ""
    if outcome == "delivered":
        return Receipt(ok=True, latency_seconds=seconds)
    error, detail = _FAILURES.get(outcome, _FAILURES["broken"])
    return Receipt(
        ok=False,
        error=error,
        detail=detail.format(reason),
        untaken=outcome in {"blocked", "unknown"},
        latency_seconds=seconds,
    )


_FAILURES = {
    "blocked": (HookError.BLOCKED, "not allowed to connect: {}"),
    "unknown": (HookError.CONFIGURATION, "Apprise cannot make anything of the URL; nothing was sent"),
    "refused": (
        HookError.REFUSED,
        "the service did not take it or was not reached; `apprise -vv -b test URL` by hand shows why",
    ),
    "broken": (HookError.CONFIGURATION, "Apprise failed on this URL"),
}
