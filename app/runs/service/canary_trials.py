"""Trying a canary: its query put to the retriever once, and the answer judged as a run would. Nothing is stored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.base.db.engine import Store
from app.base.documents.validation_messages import parse_document
from app.base.errors import ConflictError
from app.catalog.documents.documents import CanaryDocument, CheckDocument, SuiteDocument
from app.catalog.service.lookup import find_check
from app.catalog.service.references import require
from app.catalog.service.vault import Vault
from app.catalog.store import definitions, suites
from app.records.domain.run_views import ResultView
from app.retrievers.domain.retrievers import Probe
from app.retrievers.service import trials
from app.runs.service import gate
from app.runs.service.gate import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryTrial:
    """What one request for a canary found."""

    result: ResultView
    index_version: str | None
    reasons: Sequence[str]
    """Reasons of the verdict of a run with this result alone."""
    asked_at: datetime


def try_canary(
    probe: Probe, store: Store, vault: Vault, slug: str, key: str, *, run_id: str, clock: Callable[[], datetime]
) -> CanaryTrial:
    """Ask for a canary once, as it and its check are defined now.

    Whether it regressed only runs show. It takes no longer than the retriever's time-outs allow: nothing is asked
    twice. Raises NotFoundError for what is not in force, ConflictError for an archived check, and InvalidInputError
    where the retriever cannot be asked at all.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        if check.archived_at is not None:
            raise ConflictError(f"check '{slug}' is archived: nobody is asked for it any more")
        suite_slug = str(check.body["suite"])
        suite = require(definitions.find_definition(connection, "suite", suite_slug), f"suite '{suite_slug}'")
        row = next(iter(suites.list_canaries(connection, suite.id, keys=[key])), None)
    if row is None:
        raise ConflictError(f"canary '{key}' is archived: nobody asks it any more")
    retriever = trials.stored_retriever(store, vault, str(check.body["retriever"]), {})
    target = Target(
        check=parse_document(CheckDocument, check.body),
        suite=SuiteDocument(slug=suite_slug, canaries=(parse_document(CanaryDocument, row.body),)),
        retriever=retriever.model_copy(update={"retries": 0}),
    )
    asked_at = clock()
    report = gate.measure(target, probe, run_id=run_id, clock=clock)
    return CanaryTrial(
        result=report["results"][0],
        index_version=report["run"]["index_version"],
        reasons=report["run"]["reasons"],
        asked_at=asked_at,
    )
