"""Public links of checks: made, revoked, and what whoever has one may see, which is no query, text or chunk.

A link is a token of 256 bits, stored as its hash and shown once. A check has one at most; it ends with the check.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final

from app.base.db.engine import Store, from_us, to_us
from app.base.errors import ConflictError, NotFoundError
from app.base.values import Value
from app.base.views import time_text
from app.catalog import store as catalog
from app.records.store import run_rows
from app.reports import store as rows
from app.reports.service import check_details
from app.reports.service.check_details import CheckLine
from app.reports.store import PublicLinkRow
from app.reports.views import PublicLinkView

logger = logging.getLogger("coalmine.api")
SHOWN_RUNS: Final = 90


class PublicRun(Value):
    """A run as a bar of a public page."""

    ended_at: datetime
    state: str
    """Its verdict; its status where it has none."""


class PublicCheck(Value):
    """What a public page shows of a check."""

    line: CheckLine
    """Only its name and state are shown."""
    runs: Sequence[PublicRun]
    """The newest ended ones, oldest first."""
    since: datetime | None
    """When the first of the newest runs of the same state ended; None where all shown ones are of it."""


def make(store: Store, slug: str, *, by: str, now: datetime) -> str:
    """Return a new public link of a check, in the place of one that there was. Raises NotFoundError, ConflictError."""
    token = token_urlsafe(32)
    with store.write() as connection:
        catalog.hold_definition(connection, "check", slug)
        check = catalog.find_definition(connection, "check", slug)
        if check is None:
            raise NotFoundError(f"there is no check '{slug}'")
        if check.archived_at is not None:
            raise ConflictError(f"check '{slug}' is archived")
        rows.save_public_link(connection, check.id, digest_of(token), by=by, now=to_us(now))
    logger.info("public_link_made", extra={"check": slug, "by": by})
    return token


def revoke(store: Store, slug: str, *, by: str) -> None:
    """End the public link of a check at once. Raises NotFoundError where there is none."""
    with store.write() as connection:
        check = catalog.find_definition(connection, "check", slug)
        if check is None or not rows.delete_public_link(connection, check.id):
            raise NotFoundError(f"check '{slug}' has no public link")
    logger.info("public_link_revoked", extra={"check": slug, "by": by})


def find(store: Store, slug: str) -> PublicLinkRow | None:
    """Return who made the public link of a check, and when; None where there is none."""
    with store.read() as connection:
        return rows.find_public_link(connection, slug=slug)


def show(store: Store, slug: str) -> PublicLinkView:
    """Return the public link of a check without its address. Raises NotFoundError where there is none."""
    found = find(store, slug)
    if found is None:
        raise NotFoundError(f"check '{slug}' has no public link")
    return {"check": found.check, "created_by": found.created_by, "created_at": time_text(found.created_at)}


def address(public_url: str, token: str) -> str:
    """Return the address of the page that a link leads to."""
    return f"{public_url.rstrip('/')}/public/{token}"


def check_of(store: Store, token: str) -> str | None:
    """Return the check that a link is of; None for a link that is not valid."""
    with store.read() as connection:
        found = rows.find_public_link(connection, digest=digest_of(token))
    return found.check if found is not None else None


def load(store: Store, slug: str, now: datetime) -> PublicCheck:
    """Return what a public page shows of a check. Raises NotFoundError."""
    line = check_details.load_line(store, slug, now)
    with store.read() as connection:
        check = catalog.find_definition(connection, "check", slug)
        ended = run_rows.ended_runs(connection, check.id, limit=SHOWN_RUNS) if check is not None else []
    runs = [
        PublicRun(ended_at=from_us(row.finished_at), state=str(row.verdict or row.status))
        for row in ended
        if row.finished_at is not None
    ]
    other = next((place for place in reversed(range(len(runs))) if runs[place].state != runs[-1].state), None)
    return PublicCheck(line=line, runs=runs, since=None if other is None else runs[other + 1].ended_at)


def digest_of(token: str) -> bytes:
    """Return what is stored of a link."""
    return sha256(b"public link:" + token.encode()).digest()
