"""Whether what was compared is what is asked by now: changes of retrievers, checks and canaries since their runs.

Comparisons say so of what is named by check or retriever, which stands for its newest run, and promotions of both
checks. What an open alert may say of such a run stands beside it.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from app.alerts import store as alerts
from app.alerts.domain.rules import FAILED_SHARE
from app.alerts.domain.state import OPEN
from app.alerts.domain.views import AlertState
from app.base.db.engine import Connection, Store
from app.base.texts import counted, listed
from app.base.values import Value
from app.catalog import store as catalog
from app.catalog.service.references import find_check, find_run
from app.catalog.service.versions import answers_changed, load_suite, load_suite_in_force
from app.comparison.domain.outcomes import CautionKind
from app.comparison.service.decisions import plain_caution
from app.comparison.views import ComparisonCaution
from app.records.store.run_rows import RunRow
from app.scoring.run_inputs import UnusableSuiteError

DEPTHS: Final = ("k", "fetch_k")
_BY_RUN: Final = "run:"


def describe_outdated(store: Store, run_ids: Sequence[str]) -> tuple[str, ...]:
    """Say of each run that is not of what its check asks by now how it differs; the others are left out."""
    with store.read() as connection:
        found = [_describe(connection, find_run(connection, one)) for one in run_ids]
    return tuple(one for one in found if one)


def describe_edits(store: Store, run_ids: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """Say how many canaries were changed since the newest of these runs; beside it the number of those archived."""
    with store.read() as connection:
        newest = max((find_run(connection, one) for one in run_ids), key=lambda run: run.id)
        edits = _find_edits(connection, newest)
        return tuple(_say_edits(connection, newest)), 0 if edits is None else edits.archived


def cautions_since(connection: Connection, sides: Sequence[tuple[str, RunRow]]) -> list[ComparisonCaution]:
    """Return what to mind of compared runs, each with the reference that it stands for, that happened since.

    Of a run that is asked for by its number nothing: what it was is what was asked for.
    """
    named = [run for reference, run in sides if not reference.startswith(_BY_RUN)]
    if not named:
        return []
    outdated = [f"{how}: run it again" for run in named if (how := _describe(connection, run))]
    newest = max(named, key=lambda run: run.id)
    return [
        *(plain_caution(CautionKind.OUTDATED, one) for one in dict.fromkeys(outdated)),
        *(plain_caution(CautionKind.ARCHIVED, one) for one in _archived(connection, named)),
        *(plain_caution(CautionKind.EDITED, one) for one in _say_edits(connection, newest)),
        *_open_alerts(connection, named),
    ]


def retriever_changes(connection: Connection, run: RunRow) -> str:
    """Say how the retriever that a check asks differs from the one that its run asked; empty where it does not."""
    assert run.check_version_id is not None  # noqa: S101 - it has results
    assert run.retriever_version_id is not None  # noqa: S101 - likewise
    then = catalog.version_body(connection, run.check_version_id).body["retriever"]
    now = find_check(connection, run.check).body["retriever"]
    if then != now:
        return f"asked retriever '{then}', and the check asks '{now}' by now"
    definition = catalog.find_definition(connection, "retriever", now)
    asked = catalog.version_body(connection, run.retriever_version_id).body
    changed = () if definition is None else answers_changed(asked, definition.body)
    return f"asked retriever '{now}' before its {listed(changed)} changed" if changed else ""


def check_changes(connection: Connection, run: RunRow, *also: str) -> str:
    """Say how the retriever of a check, its depths and its fields `also` differ from those of its run."""
    assert run.check_version_id is not None  # noqa: S101 - it has results
    then = catalog.version_body(connection, run.check_version_id).body
    now = find_check(connection, run.check).body
    fields = [
        f"was of {name} {then[name]}, which is {now[name]} by now"
        for name in (*also, *DEPTHS)
        if name in then and name in now and then[name] != now[name]
    ]
    return listed([one for one in (retriever_changes(connection, run), *fields) if one])


def _describe(connection: Connection, run: RunRow) -> str:
    """Say how a run differs from what its check asks by now; empty where it does not."""
    edits = _find_edits(connection, run)
    many = f"was before {edits.text} were edited or added" if edits is not None and edits.are_many else ""
    told = listed([one for one in (check_changes(connection, run, "suite"), many) if one])
    return f"run {run.id} of check '{run.check}' {told}" if told else ""


class _Edits(Value):
    """How many canaries of a suite were edited or added, and taken out of it, since a run."""

    suite: str
    canaries: int
    """That it has by now."""
    changed: int
    """Edited or added."""
    archived: int

    @property
    def are_many(self) -> bool:
        """Whether so many were edited or added that the run does not stand for what the suite asks by now."""
        return self.changed > FAILED_SHARE * self.canaries

    @property
    def text(self) -> str:
        """Return how many were edited or added, and of how many."""
        return f"{self.changed:,} of {counted(self.canaries, 'canary')}"


def _find_edits(connection: Connection, run: RunRow) -> _Edits | None:
    """Return what became of the canaries of a run since; None where nothing did, or the suite is another one."""
    suite = catalog.find_definition(connection, "suite", find_check(connection, run.check).body["suite"])
    if suite is None or run.suite_version_id is None:
        return None
    with suppress(UnusableSuiteError):
        then, now = load_suite(connection, run.suite_version_id), load_suite_in_force(connection, suite)
        if then.version_ids == now.version_ids or then.suite_id != suite.id:
            return None
        before = {one.canary_id: one.canary for one in then.members}
        kept = {one.canary_id for one in now.members}
        changed = sum(
            one.canary_id not in before or not one.canary.finds_as(before[one.canary_id]) for one in now.members
        )
        return _Edits(suite=suite.slug, canaries=len(now.members), changed=changed, archived=len(before.keys() - kept))
    return None


def _say_edits(connection: Connection, run: RunRow) -> Iterator[str]:
    """Yield how many canaries were changed since a run; where many were, the run is told as outdated instead."""
    edits = _find_edits(connection, run)
    if edits is None:
        return
    since = f"since run {run.id} of check '{run.check}'"
    if edits.changed and not edits.are_many:
        were = "was" if edits.changed == 1 else "were"
        yield f"{since} {edits.text} of suite '{edits.suite}' {were} edited or added: run both checks again"
    if edits.archived:
        were = "was" if edits.archived == 1 else "were"
        taken = f"{counted(edits.archived, 'canary')} of suite '{edits.suite}' {were} archived"
        yield f"{since} {taken}, and still {'counts' if edits.archived == 1 else 'count'} here: run both checks again"


def _archived(connection: Connection, runs: Sequence[RunRow]) -> Iterator[str]:
    """Yield which checks of these runs are archived."""
    for run in {run.check: run for run in runs}.values():
        if find_check(connection, run.check).archived_at is not None:
            yield f"check '{run.check}' is archived: run {run.id} stays its newest, whatever changes"


def _open_alerts(connection: Connection, runs: Sequence[RunRow]) -> Iterator[ComparisonCaution]:
    """Yield the alerts that are open of the checks of these runs."""
    for check_id, slug in dict.fromkeys((run.check_id, run.check) for run in runs):
        for alert in alerts.open_alerts(connection, check_id, hold=False):
            if AlertState(alert.state) in OPEN:
                what = f"alert {alert.id} of check '{slug}' is open ({alert.severity}, rule {alert.rule_key})"
                sentence = f"{what}: what was measured meanwhile may be caused by that fault"
                yield plain_caution(CautionKind.ALERT, sentence, alert_id=str(alert.id))
