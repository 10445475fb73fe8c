"""Judgments whose chunks were renamed: what is proposed in their place, and what a person says to that.

Accepting changes the canary as the API does; what a file owns gets a patch to commit, and its proposal waits until
the file says so. Proposals come from diagnosis.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from app.domain.diagnosis.views import (
    FilePatch,
    ReanchorDecision,
    ReanchorOutcome,
    ReanchorState,
    ReanchorView,
    StoredJudgment,
)
from app.domain.errors import InvalidInputError, Problem
from app.formats.catalog.canary_export import write_canary_file
from app.formats.catalog.canary_files import Documents
from app.formats.catalog.documents import CanaryDocument, JudgmentDocument, SuiteDocument
from app.formats.diagnosis.judgment_patch import Replacement, judgment_name, patch_text, replace_judgments
from app.formats.history import shapes
from app.formats.validation_messages import parse_document
from app.services.catalog.references import API, is_file_managed, require
from app.services.catalog.suite_plans import (
    SuitePlan,
    hold_suite,
    plan_and_write,
    plan_suite,
    suite_content,
    write_suite_plan,
)
from app.services.catalog.suite_snapshots import SuiteOvertakenError
from app.services.lookup import find_check
from app.store.catalog import definitions, suites
from app.store.catalog.suites import CanaryRow
from app.store.diagnosis import diagnoses
from app.store.diagnosis.diagnoses import ReanchorRow
from app.store.engine import Connection, Store, to_us

_MOST = 1_000
_PAGE = 200
_LARGEST_FILE = 20_000_000


Wanted = Collection[int] | None
"""Proposals by id; None = all that wait for an answer."""


def decide(
    store: Store, slug: str, *, accept: Wanted = (), reject: Wanted = (), by: str, now: datetime
) -> ReanchorDecision:
    """Accept or reject proposals of a check, all of them in one transaction.

    Gives `accepted`, `rejected` and `outdated` (the judgment is not there any more), those that wait for their files
    as `to_commit` with one of `patches` a file, and as `unchanged` those that were decided before. Raises
    NotFoundError for the check and InvalidInputError for what is none of its proposals; nothing is changed then.
    """
    at = to_us(now)

    def write(planned: _Decision) -> _Decision:
        with store.write(planned.plan.staged.tables if planned.plan is not None else ()) as connection:
            hold_suite(connection, planned.suite_slug, planned.revision)
            for state, ids, who in planned.decided(by):
                if diagnoses.decide_reanchors(connection, ids, state=state, at=at, by=who) != len(ids):
                    raise SuiteOvertakenError  # somebody else decided meanwhile
            if planned.plan is not None:
                write_suite_plan(connection, planned.plan, managed_by=API, now=at)
        return planned

    return plan_and_write(store, lambda connection: _plan(connection, slug, accept, reject), write).shape()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """What somebody's answer comes to, and the revision of the suite this was planned for."""

    suite_slug: str
    revision: int
    plan: SuitePlan | None
    """None = no canary changes."""
    known: Mapping[int, CanaryRow]
    chosen: Sequence[ReanchorRow]
    """As they stood."""
    accepted: Sequence[ReanchorRow]
    rejected: Sequence[ReanchorRow]
    in_files: Sequence[ReanchorRow]
    ended: Mapping[ReanchorState, Sequence[int]]
    """Ids of those that got their answer from their canaries meanwhile, of others of the check too."""

    def decided(self, by: str) -> list[tuple[ReanchorState, list[int], str | None]]:
        """List what is to be written of proposals: state, ids and who said so."""
        mine = [(ReanchorState.ACCEPTED, self.accepted), (ReanchorState.REJECTED, self.rejected)]
        return [
            *((state, [row.id for row in rows], by) for state, rows in mine),
            *((state, list(ids), None) for state, ids in self.ended.items()),
        ]

    def shape(self) -> ReanchorDecision:
        """Shape it for whoever decided."""
        outdated = [row for row in self.chosen if row.state == ReanchorState.OUTDATED]
        decided = {row.id for row in [*self.accepted, *self.rejected, *self.in_files, *outdated]}
        return {
            "accepted": [_told(row, ReanchorState.ACCEPTED) for row in self.accepted],
            "rejected": [_told(row, ReanchorState.REJECTED) for row in self.rejected],
            "outdated": [_told(row, ReanchorState.OUTDATED) for row in outdated],
            "to_commit": [_told(row, ReanchorState.PROPOSED) for row in self.in_files],
            "unchanged": [_told(row, ReanchorState(row.state)) for row in self.chosen if row.id not in decided],
            "patches": _patches(self.suite_slug, self.known, self.in_files),
        }


def _plan(connection: Connection, slug: str, accept: Wanted, reject: Wanted) -> _Decision:
    """Plan an answer. Raises as `decide` does."""
    check = require(definitions.find_definition(connection, "check", slug), f"check '{slug}'")
    suite_slug = str(check.body["suite"])
    suite = require(definitions.find_definition(connection, "suite", suite_slug), f"suite '{suite_slug}'")
    newest = diagnoses.list_reanchors(connection, check.id, state=ReanchorState.PROPOSED, limit=_MOST)
    rows = _chosen(connection, check.id, slug, accept, reject)  # they may be beyond the newest
    known = _in_force(connection, suite_slug, {row.canary_id for row in [*newest, *rows]})
    chosen = [_as_it_stands(row, known) for row in rows]
    waiting = [row for row in chosen if row.state == ReanchorState.PROPOSED]
    taken = [row for row in waiting if accept is None or row.id in accept]
    here = [row for row in taken if not is_file_managed(known[row.canary_id])]
    return _Decision(
        suite_slug=suite_slug,
        revision=suite.revision,
        plan=_plan_canaries(connection, suite_slug, known, here) if here else None,
        known=known,
        chosen=chosen,
        accepted=here,
        rejected=[row for row in waiting if row not in taken],
        in_files=[row for row in taken if is_file_managed(known[row.canary_id])],
        ended=_ended({row.id: row for row in [*newest, *rows]}.values(), known),
    )


def list_all(
    store: Store, slug: str, *, state: ReanchorState | None, before: int | None = None, limit: int
) -> list[ReanchorView]:
    """List the proposals of a check, newest first, those with an id below `before`.

    One that waits is shown as accepted or outdated once its canary says so, whoever changed it.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        suite_slug = str(check.body["suite"])
        known: dict[int, CanaryRow] = {}
        found: list[tuple[ReanchorRow, ReanchorState]] = []
        for stored in _stored_as(state):
            below, enough = before, len(found) + limit
            while len(found) < enough:
                rows = diagnoses.list_reanchors(connection, check.id, state=stored, before=below, limit=_PAGE)
                known |= _in_force(connection, suite_slug, {row.canary_id for row in rows} - known.keys())
                standing = [(row, _standing(row, known.get(row.canary_id))) for row in rows]
                found += [(row, now) for row, now in standing if state is None or now is state]
                if len(rows) < _PAGE:
                    break
                below = rows[-1].id
    found.sort(key=lambda one: one[0].id, reverse=True)
    return [_shape(row, now, known) for row, now in found[:limit]]


def _stored_as(state: ReanchorState | None) -> Sequence[ReanchorState | None]:
    """List the states in the database of what is in a state; what waits there may have got its answer meanwhile."""
    if state is None:
        return (None,)
    return (state, ReanchorState.PROPOSED) if state in {ReanchorState.ACCEPTED, ReanchorState.OUTDATED} else (state,)


def _in_force(connection: Connection, suite_slug: str, ids: Collection[int]) -> Mapping[int, CanaryRow]:
    """Return those of these canaries that are in force, by id."""
    suite = definitions.find_definition(connection, "suite", suite_slug) if ids else None
    return {row.id: row for row in suites.list_canaries(connection, suite.id, ids=ids)} if suite else {}


def settle(connection: Connection, check_id: int, suite_slug: str, *, at: int) -> None:
    """End the proposals of a check to which its canaries in force gave the answer meanwhile."""
    waiting = diagnoses.list_reanchors(connection, check_id, state=ReanchorState.PROPOSED, limit=_MOST)
    known = _in_force(connection, suite_slug, {row.canary_id for row in waiting})
    for state, ids in _ended(waiting, known).items():
        diagnoses.decide_reanchors(connection, ids, state=state, at=at, by=None)


def _ended(rows: Iterable[ReanchorRow], known: Mapping[int, CanaryRow]) -> Mapping[ReanchorState, Sequence[int]]:
    """List the ids of those of these proposals that got their answer meanwhile, by what it was."""
    ended: dict[ReanchorState, list[int]] = defaultdict(list)
    for row in rows:
        now = _standing(row, known.get(row.canary_id))
        if now != row.state:
            ended[now].append(row.id)
    return ended


def _as_it_stands(row: ReanchorRow, known: Mapping[int, CanaryRow]) -> ReanchorRow:
    return replace(row, state=_standing(row, known.get(row.canary_id)))


def _chosen(connection: Connection, check_id: int, slug: str, accept: Wanted, reject: Wanted) -> list[ReanchorRow]:
    """Read the proposals somebody names. Raises InvalidInputError where that is not clear."""
    if accept is None or reject is None:
        if (accept is None and reject is None) or accept or reject:
            raise InvalidInputError([Problem(message="say `all` of one of them, and leave the other out")])
        rows = diagnoses.list_reanchors(connection, check_id, state=ReanchorState.PROPOSED, limit=_MOST)
        return rows[::-1]
    problems = [Problem(path="reject", message=f"'{one}' is accepted too") for one in sorted({*accept} & {*reject})]
    rows = diagnoses.find_reanchors(connection, check_id, [*accept, *reject])
    found = {row.id for row in rows}
    for name, ids in (("accept", accept), ("reject", reject)):
        told = f"check '{slug}' has no proposal"
        problems += [Problem(path=name, message=f"{told} '{one}'") for one in sorted(ids) if one not in found]
    if problems:
        raise InvalidInputError(problems)
    return rows


def _plan_canaries(
    connection: Connection, suite: str, known: Mapping[int, CanaryRow], accepted: Sequence[ReanchorRow]
) -> SuitePlan:
    """Plan the new versions of these canaries, as a PUT would put them in force."""
    documents = [
        parse_document(CanaryDocument, replace_judgments(CanaryDocument.model_validate(known[canary].body), new))
        for canary, new in _by_canary(accepted).items()
    ]
    return plan_suite(connection, suite_content(suite, documents), replace=False)


def _by_canary(rows: Iterable[ReanchorRow]) -> dict[int, dict[str, list[JudgmentDocument]]]:
    """Give what is to be replaced, by canary id and name of the judgment."""
    wanted: dict[int, dict[str, list[JudgmentDocument]]] = defaultdict(dict)
    for row in rows:
        wanted[row.canary_id][judgment_name(_document(row.judgment))] = _documents(row)
    return wanted


def _standing(row: ReanchorRow, canary: CanaryRow | None) -> ReanchorState:
    """Say how a proposal stands, given its canary in force."""
    if row.state != ReanchorState.PROPOSED:
        return ReanchorState(row.state)
    if canary is None:
        return ReanchorState.OUTDATED
    listed = {judgment_name(_document(chunk)) for chunk in canary.body["expected_chunks"]}
    if judgment_name(_document(row.judgment)) in listed:
        return ReanchorState.PROPOSED
    proposed = {judgment_name(one) for one in _documents(row)}
    return ReanchorState.ACCEPTED if proposed <= listed else ReanchorState.OUTDATED


@dataclass(frozen=True, slots=True, kw_only=True)
class _InFile:
    """A canary of a file with what is to be replaced in it."""

    canary: CanaryRow
    document: CanaryDocument
    wanted: Mapping[str, Sequence[JudgmentDocument]]


def _patches(suite: str, known: Mapping[int, CanaryRow], rows: Sequence[ReanchorRow]) -> list[FilePatch]:
    """Write what is to be committed, file by file: a diff where the file can be read here, else its canaries anew."""
    files: dict[str, list[_InFile]] = defaultdict(list)
    for canary_id, wanted in _by_canary(rows).items():
        canary = known[canary_id]
        file = (canary.source or "").rpartition(":")[0]
        document = CanaryDocument.model_validate(canary.body)
        files[file].append(_InFile(canary=canary, document=document, wanted=wanted))
    return [
        {
            "file": file or None,
            "canaries": [one.canary.key for one in changed],
            "diff": _diff(suite, file, changed),
            "yaml": _yaml(suite, changed),
        }
        for file, changed in sorted(files.items())
    ]


def _diff(suite: str, file: str, changed: Sequence[_InFile]) -> str | None:
    """Write the patch of a file, named as its repository names it; None where it is not here, or says other things."""
    replacements: list[Replacement] = []
    for one in changed:
        mine = _replacements(suite, one)
        if mine is None:
            return None
        replacements += mine
    try:
        path = Path(file)
        if not file or not path.is_file() or path.stat().st_size > _LARGEST_FILE:
            return None
        text = path.read_bytes().decode()
        root = next((folder for folder in path.absolute().parents if (folder / ".git").exists()), None)
    except (OSError, ValueError):
        return None
    name = file.lstrip("/") if root is None else path.absolute().relative_to(root).as_posix()
    return patch_text(name, text, replacements)


def _replacements(suite: str, changed: _InFile) -> list[Replacement] | None:
    """Say what stands in the place of each judgment; of two that become one, the second goes.

    None where a judgment nobody replaces would need another grade.
    """
    after = CanaryDocument.model_validate(replace_judgments(changed.document, changed.wanted)).expected_chunks
    left = {chunk.identity: chunk for chunk in after}
    found: list[Replacement] = []
    replaced = [chunk for chunk in changed.document.expected_chunks if judgment_name(chunk) in changed.wanted]
    for chunk in changed.document.expected_chunks:
        if chunk not in replaced and left.pop(chunk.identity) != chunk:
            return None
    for chunk in replaced:
        new = [left.pop(one.identity, None) for one in changed.wanted[judgment_name(chunk)]]
        told = tuple(one for one in new if one is not None)
        found.append(Replacement(suite=suite, key=changed.canary.key, old=chunk, new=told))
    return found


def _yaml(suite: str, changed: Sequence[_InFile]) -> str:
    canaries = [CanaryDocument.model_validate(replace_judgments(one.document, one.wanted)) for one in changed]
    return write_canary_file(Documents(suites=(SuiteDocument(slug=suite, canaries=tuple(canaries)),)))


def _shape(row: ReanchorRow, state: ReanchorState, known: Mapping[int, CanaryRow]) -> ReanchorView:
    canary = known.get(row.canary_id)
    return {
        **_told(row, state),
        "query": canary.body["query"] if canary is not None else None,
        "managed_by": canary.managed_by if canary is not None else None,
        "source": canary.source if canary is not None else None,
        "judgment": _stored(row.judgment),
        "proposals": [_stored(one) for one in row.proposals],
        "old_text": None if row.texts is None else row.texts["old"],
        "new_texts": None if row.texts is None else row.texts["new"],
        "similarity": shapes.number(row.similarity),
        "created_at": shapes.time_text(row.created_at),
        "decided_at": shapes.time_text(row.decided_at),
        "decided_by": row.decided_by,
    }


def _told(row: ReanchorRow, state: ReanchorState) -> ReanchorOutcome:
    return {"id": str(row.id), "key": row.key, "state": state}


def _stored(judgment: Mapping[str, Any]) -> StoredJudgment:
    return {
        "id": judgment["id"],
        "document": judgment["document"],
        "text": judgment["text"],
        "grade": judgment["grade"],
    }


def _document(judgment: Any) -> JudgmentDocument:
    return JudgmentDocument.model_validate(judgment)


def _documents(row: ReanchorRow) -> list[JudgmentDocument]:
    return [_document(one) for one in row.proposals]
