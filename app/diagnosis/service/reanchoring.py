"""Proposals of judgments whose chunks were renamed: listed, accepted, rejected, or outdated.

Accepting changes the canary as the API does; a canary of a file gets a patch to commit, and its proposal stays open
until the file is applied. Proposals are made in `diagnoses`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.base.db.engine import Connection, Store, to_us
from app.base.documents.validation_messages import parse_document
from app.base.errors import InvalidInputError, Problem
from app.catalog.documents.documents import CanaryDocument
from app.catalog.service.lookup import find_check
from app.catalog.service.references import API, is_file_managed, require
from app.catalog.service.suite_plans import (
    SuitePlan,
    hold_suite,
    plan_and_write,
    plan_suite,
    suite_content,
    write_suite_plan,
)
from app.catalog.service.suite_snapshots import SuiteOvertakenError
from app.catalog.store import definitions, suites
from app.catalog.store.suites import CanaryRow
from app.diagnosis.documents.judgment_patch import judgment_name, replace_judgments
from app.diagnosis.domain.views import ReanchorDecision, ReanchorOutcome, ReanchorState, ReanchorView, StoredJudgment
from app.diagnosis.service.reanchor_patches import (
    file_patches,
    judgment_document,
    proposed_documents,
    replacements_by_canary,
)
from app.diagnosis.store import diagnoses
from app.diagnosis.store.diagnoses import ReanchorRow
from app.records import documents as shapes

_MOST = 1_000
_PAGE = 200


ProposalIds = Collection[int] | None
"""Proposals by id; None = all open ones."""


def decide(
    store: Store, slug: str, *, accept: ProposalIds = (), reject: ProposalIds = (), by: str, now: datetime
) -> ReanchorDecision:
    """Accept or reject proposals of a check, all of them in one transaction.

    Returns `accepted`, `rejected` and `outdated` (the judgment is gone), those of files as `to_commit` with one of
    `patches` per file, and as `unchanged` those decided before. Raises NotFoundError for the check and
    InvalidInputError for ids that are none of its proposals; nothing is changed then.
    """
    at = to_us(now)

    def write(planned: _Decision) -> _Decision:
        with store.write(planned.plan.staged.tables if planned.plan is not None else ()) as connection:
            hold_suite(connection, planned.suite_slug, planned.revision)
            for state, ids, who in planned.changes(by):
                if diagnoses.decide_reanchors(connection, ids, state=state, at=at, by=who) != len(ids):
                    raise SuiteOvertakenError  # decided by another request meanwhile
            if planned.plan is not None:
                write_suite_plan(connection, planned.plan, managed_by=API, now=at)
        return planned

    return plan_and_write(store, lambda connection: _plan(connection, slug, accept, reject), write).shape()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """Planned changes of a decision, and the revision of the suite they were planned for."""

    suite_slug: str
    revision: int
    plan: SuitePlan | None
    """None = no canary changes."""
    canaries: Mapping[int, CanaryRow]
    chosen: Sequence[ReanchorRow]
    """With their state before the decision."""
    accepted: Sequence[ReanchorRow]
    rejected: Sequence[ReanchorRow]
    in_files: Sequence[ReanchorRow]
    ended: Mapping[ReanchorState, Sequence[int]]
    """Ids of open proposals of the check that edits of their canaries ended, by state."""

    def changes(self, by: str) -> list[tuple[ReanchorState, list[int], str | None]]:
        """Return the changes of proposals: state, ids and who decided."""
        mine = [(ReanchorState.ACCEPTED, self.accepted), (ReanchorState.REJECTED, self.rejected)]
        return [
            *((state, [row.id for row in rows], by) for state, rows in mine),
            *((state, list(ids), None) for state, ids in self.ended.items()),
        ]

    def shape(self) -> ReanchorDecision:
        """Return the decision as JSON on the wire."""
        outdated = [row for row in self.chosen if row.state == ReanchorState.OUTDATED]
        decided = {row.id for row in [*self.accepted, *self.rejected, *self.in_files, *outdated]}
        return {
            "accepted": [_outcome(row, ReanchorState.ACCEPTED) for row in self.accepted],
            "rejected": [_outcome(row, ReanchorState.REJECTED) for row in self.rejected],
            "outdated": [_outcome(row, ReanchorState.OUTDATED) for row in outdated],
            "to_commit": [_outcome(row, ReanchorState.PROPOSED) for row in self.in_files],
            "unchanged": [_outcome(row, ReanchorState(row.state)) for row in self.chosen if row.id not in decided],
            "patches": file_patches(self.suite_slug, self.canaries, self.in_files),
        }


def _plan(connection: Connection, slug: str, accept: ProposalIds, reject: ProposalIds) -> _Decision:
    """Plan a decision. Raises as `decide` does."""
    check = require(definitions.find_definition(connection, "check", slug), f"check '{slug}'")
    suite_slug = str(check.body["suite"])
    suite = require(definitions.find_definition(connection, "suite", suite_slug), f"suite '{suite_slug}'")
    newest = diagnoses.list_reanchors(connection, check.id, state=ReanchorState.PROPOSED, limit=_MOST)
    rows = _find_proposals(connection, check.id, slug, accept, reject)  # they may be beyond the newest
    canaries = _in_force(connection, suite_slug, {row.canary_id for row in [*newest, *rows]})
    chosen = [replace(row, state=_current_state(row, canaries.get(row.canary_id))) for row in rows]
    waiting = [row for row in chosen if row.state == ReanchorState.PROPOSED]
    taken = [row for row in waiting if accept is None or row.id in accept]
    here = [row for row in taken if not is_file_managed(canaries[row.canary_id])]
    return _Decision(
        suite_slug=suite_slug,
        revision=suite.revision,
        plan=_plan_canaries(connection, suite_slug, canaries, here) if here else None,
        canaries=canaries,
        chosen=chosen,
        accepted=here,
        rejected=[row for row in waiting if row not in taken],
        in_files=[row for row in taken if is_file_managed(canaries[row.canary_id])],
        ended=_ended_by_edits({row.id: row for row in [*newest, *rows]}.values(), canaries),
    )


def list_all(
    store: Store, slug: str, *, state: ReanchorState | None, before: int | None = None, limit: int
) -> list[ReanchorView]:
    """List the proposals of a check, newest first, those with an id below `before`.

    An open one is shown as accepted or outdated where an edit of its canary ended it.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        suite_slug = str(check.body["suite"])
        canaries: dict[int, CanaryRow] = {}
        found: list[tuple[ReanchorRow, ReanchorState]] = []
        for stored in _stored_states(state):
            below, enough = before, len(found) + limit
            while len(found) < enough:
                rows = diagnoses.list_reanchors(connection, check.id, state=stored, before=below, limit=_PAGE)
                canaries |= _in_force(connection, suite_slug, {row.canary_id for row in rows} - canaries.keys())
                standing = [(row, _current_state(row, canaries.get(row.canary_id))) for row in rows]
                found += [(row, now) for row, now in standing if state is None or now is state]
                if len(rows) < _PAGE:
                    break
                below = rows[-1].id
    found.sort(key=lambda one: one[0].id, reverse=True)
    return [_view(row, now, canaries) for row, now in found[:limit]]


def _stored_states(state: ReanchorState | None) -> Sequence[ReanchorState | None]:
    """Return the stored states of the proposals in a state; edits of canaries may have ended open ones."""
    if state is None:
        return (None,)
    return (state, ReanchorState.PROPOSED) if state in {ReanchorState.ACCEPTED, ReanchorState.OUTDATED} else (state,)


def _in_force(connection: Connection, suite_slug: str, ids: Collection[int]) -> Mapping[int, CanaryRow]:
    """Those of these canaries that are in force, by id."""
    suite = definitions.find_definition(connection, "suite", suite_slug) if ids else None
    return {row.id: row for row in suites.list_canaries(connection, suite.id, ids=ids)} if suite else {}


def end_decided(connection: Connection, check_id: int, suite_slug: str, *, at: int) -> None:
    """End the open proposals of a check that edits of its canaries decided."""
    waiting = diagnoses.list_reanchors(connection, check_id, state=ReanchorState.PROPOSED, limit=_MOST)
    canaries = _in_force(connection, suite_slug, {row.canary_id for row in waiting})
    for state, ids in _ended_by_edits(waiting, canaries).items():
        diagnoses.decide_reanchors(connection, ids, state=state, at=at, by=None)


def _ended_by_edits(
    rows: Iterable[ReanchorRow], canaries: Mapping[int, CanaryRow]
) -> Mapping[ReanchorState, Sequence[int]]:
    """Ids of the proposals that edits of their canaries ended, by their new state."""
    ended: dict[ReanchorState, list[int]] = defaultdict(list)
    for row in rows:
        now = _current_state(row, canaries.get(row.canary_id))
        if now != row.state:
            ended[now].append(row.id)
    return ended


def _find_proposals(
    connection: Connection, check_id: int, slug: str, accept: ProposalIds, reject: ProposalIds
) -> list[ReanchorRow]:
    """Read the proposals with these ids. Raises InvalidInputError for unknown or contradicting ids."""
    if accept is None or reject is None:
        if (accept is None and reject is None) or accept or reject:
            raise InvalidInputError([Problem(message="use `all` for one of them, and leave out the other")])
        rows = diagnoses.list_reanchors(connection, check_id, state=ReanchorState.PROPOSED, limit=_MOST)
        return rows[::-1]
    problems = [Problem(path="reject", message=f"'{one}' is accepted too") for one in sorted({*accept} & {*reject})]
    rows = diagnoses.find_reanchors(connection, check_id, [*accept, *reject])
    found = {row.id for row in rows}
    for name, ids in (("accept", accept), ("reject", reject)):
        unknown = sorted(one for one in ids if one not in found)
        problems += [Problem(path=name, message=f"check '{slug}' has no proposal '{one}'") for one in unknown]
    if problems:
        raise InvalidInputError(problems)
    return rows


def _plan_canaries(
    connection: Connection, suite: str, canaries: Mapping[int, CanaryRow], accepted: Sequence[ReanchorRow]
) -> SuitePlan:
    """Plan the new versions of these canaries, as a PUT does."""
    documents = [
        parse_document(CanaryDocument, replace_judgments(CanaryDocument.model_validate(canaries[canary].body), new))
        for canary, new in replacements_by_canary(accepted).items()
    ]
    return plan_suite(connection, suite_content(suite, documents), replace=False)


def _current_state(row: ReanchorRow, canary: CanaryRow | None) -> ReanchorState:
    """Return the current state of a proposal, given its canary in force."""
    if row.state != ReanchorState.PROPOSED:
        return ReanchorState(row.state)
    if canary is None:
        return ReanchorState.OUTDATED
    listed = {judgment_name(judgment_document(chunk)) for chunk in canary.body["expected_chunks"]}
    if judgment_name(judgment_document(row.judgment)) in listed:
        return ReanchorState.PROPOSED
    proposed = {judgment_name(one) for one in proposed_documents(row)}
    return ReanchorState.ACCEPTED if proposed <= listed else ReanchorState.OUTDATED


def _view(row: ReanchorRow, state: ReanchorState, canaries: Mapping[int, CanaryRow]) -> ReanchorView:
    canary = canaries.get(row.canary_id)
    return {
        **_outcome(row, state),
        "query": canary.body["query"] if canary is not None else None,
        "managed_by": canary.managed_by if canary is not None else None,
        "source": canary.source if canary is not None else None,
        "judgment": _judgment_view(row.judgment),
        "proposals": [_judgment_view(one) for one in row.proposals],
        "old_text": None if row.texts is None else row.texts["old"],
        "new_texts": None if row.texts is None else row.texts["new"],
        "similarity": shapes.number(row.similarity),
        "created_at": shapes.time_text(row.created_at),
        "decided_at": shapes.time_text(row.decided_at),
        "decided_by": row.decided_by,
    }


def _outcome(row: ReanchorRow, state: ReanchorState) -> ReanchorOutcome:
    return {"id": str(row.id), "key": row.key, "state": state}


def _judgment_view(judgment: StoredJudgment) -> StoredJudgment:
    return {
        "id": judgment["id"],
        "document": judgment["document"],
        "text": judgment["text"],
        "grade": judgment["grade"],
    }
