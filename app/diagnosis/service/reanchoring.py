"""Proposals of judgments whose chunks were renamed: listed, accepted, rejected, or outdated; and patches of files.

Accepting changes the canary as the API does; a canary of a file gets a patch to commit, and its proposal stays open
until the file is applied. Proposals are made in `diagnoses`.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any

from app.base.db.engine import Connection, Store, to_us
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError, Problem
from app.base.texts import counted
from app.base.values import Judgment, Ranking, Value, replace
from app.base.views import id_or_none, view_of
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument, JudgmentDocument, SuiteDocument
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.catalog.service.references import find_check
from app.catalog.service.suites import (
    SuiteOvertakenError,
    SuitePlan,
    hold_suite,
    plan_and_write,
    plan_suite,
    suite_content,
    write_suite_plan,
)
from app.catalog.store import API, CanaryRow, require
from app.diagnosis import store as diagnoses
from app.diagnosis.domain.reanchors import is_back
from app.diagnosis.rendering import Replacement, judgment_name, patch_text, replace_judgments
from app.diagnosis.store import ReanchorRow
from app.diagnosis.views import (
    FilePatch,
    ReanchorDecision,
    ReanchorOutcome,
    ReanchorState,
    ReanchorView,
    StoredJudgment,
)
from app.records.store import ranking_rows, state_rows
from app.records.store.run_rows import RunRow

_MOST = 1_000
_PAGE = 200
ProposalIds = Collection[int] | None
"""Proposals by id; None = all open ones."""


def proposal_ids(path: str, given: Sequence[str]) -> list[int]:
    """Return ids from their texts. Raises InvalidInputError for texts that are none."""
    strange = [one for one in given if id_or_none(one) is None]
    if strange:
        raise InvalidInputError([Problem(path=path, message=f"there is no proposal '{one[:40]}'") for one in strange])
    return [int(one) for one in given]


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


class _Decision(Value):
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
    check = require(catalog.find_definition(connection, "check", slug), f"check '{slug}'")
    suite_slug = str(check.body["suite"])
    suite = require(catalog.find_definition(connection, "suite", suite_slug), f"suite '{suite_slug}'")
    newest = diagnoses.list_reanchors(connection, check.id, state=ReanchorState.PROPOSED, limit=_MOST)
    rows = _find_proposals(connection, check.id, slug, accept, reject)  # they may be beyond the newest
    canaries = _in_force(connection, suite_slug, {row.canary_id for row in [*newest, *rows]})
    chosen = [replace(row, state=_current_state(row, canaries.get(row.canary_id))) for row in rows]
    waiting = [row for row in chosen if row.state == ReanchorState.PROPOSED]
    taken = [row for row in waiting if accept is None or row.id in accept]
    here = [row for row in taken if not canaries[row.canary_id].is_file_managed]
    return _Decision(
        suite_slug=suite_slug,
        revision=suite.revision,
        plan=_plan_canaries(connection, suite_slug, canaries, here) if here else None,
        canaries=canaries,
        chosen=chosen,
        accepted=here,
        rejected=[row for row in waiting if row not in taken],
        in_files=[row for row in taken if canaries[row.canary_id].is_file_managed],
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
    suite = catalog.find_definition(connection, "suite", suite_slug) if ids else None
    return {row.id: row for row in catalog.list_canaries(connection, suite.id, ids=ids)} if suite else {}


def end_decided(connection: Connection, check_id: int, *, at: int) -> None:
    """End the open proposals of a check that edits of its canaries decided."""
    suite_slug = catalog.definition_by_id(connection, check_id).body["suite"]
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
    listed = {judgment_name(JudgmentDocument.model_validate(chunk)) for chunk in canary.body["expected_chunks"]}
    if judgment_name(JudgmentDocument.model_validate(row.judgment)) in listed:
        return ReanchorState.PROPOSED
    proposed = {judgment_name(one) for one in proposed_documents(row)}
    return ReanchorState.ACCEPTED if proposed <= listed else ReanchorState.OUTDATED


def _view(row: ReanchorRow, state: ReanchorState, canaries: Mapping[int, CanaryRow]) -> ReanchorView:
    canary = canaries.get(row.canary_id)
    return view_of(
        ReanchorView,
        _outcome(row, state),
        row,
        query=canary.body["query"] if canary is not None else None,
        managed_by=canary.managed_by if canary is not None else None,
        source=canary.source if canary is not None else None,
        judgment=view_of(StoredJudgment, row.judgment),
        proposals=[view_of(StoredJudgment, one) for one in row.proposals],
        old_text=None if row.texts is None else row.texts["old"],
        new_texts=None if row.texts is None else row.texts["new"],
        rounding=True,
    )


def _outcome(row: ReanchorRow, state: ReanchorState) -> ReanchorOutcome:
    return {"id": str(row.id), "key": row.key, "state": state}


_LARGEST_FILE = 20_000_000


def file_patches(suite: str, canaries: Mapping[int, CanaryRow], rows: Sequence[ReanchorRow]) -> list[FilePatch]:
    """Patches to commit, one per file: a diff where the file can be read here, else its canaries as YAML."""
    changed: list[FileCanary] = []
    for canary_id, replacements in replacements_by_canary(rows).items():
        canary = canaries[canary_id]
        document = CanaryDocument.model_validate(canary.body)
        changed.append(FileCanary(canary=canary, document=document, replacements=replacements))
    return patch_files(suite, changed)


def patch_files(suite: str, canaries: Iterable["FileCanary"]) -> list[FilePatch]:
    """Patches to commit for canaries of files whose judgments change, one per file, as `file_patches`."""
    files: dict[str, list[FileCanary]] = defaultdict(list)
    for one in canaries:
        files[(one.canary.source or "").rpartition(":")[0]].append(one)
    return [
        {
            "file": file or None,
            "canaries": [one.canary.key for one in changed],
            "diff": _diff(suite, file, changed),
            "yaml": _yaml(suite, changed),
        }
        for file, changed in sorted(files.items())
    ]


class FileCanary(Value):
    """A canary of a file with the replacements of its judgments, by name, and new ones."""

    canary: CanaryRow
    document: CanaryDocument
    replacements: Mapping[str, Sequence[JudgmentDocument]]
    added: Sequence[JudgmentDocument] = ()

    @property
    def edits(self) -> Mapping[str, Sequence[JudgmentDocument]]:
        """The replacements, the new judgments among them: they stand behind the last one there is."""
        if not self.added or not self.document.expected_chunks:
            return self.replacements
        last = self.document.expected_chunks[-1]
        name = judgment_name(last)
        return {**self.replacements, name: (*self.replacements.get(name, (last,)), *self.added)}

    @property
    def body(self) -> dict[str, Any]:
        """The canary with its new judgments."""
        body = replace_judgments(self.document, self.edits)
        alone = [] if self.document.expected_chunks else [chunk.data() for chunk in self.added]
        return {**body, "expected_chunks": [*body["expected_chunks"], *alone]}


def _diff(suite: str, file: str, changed: Sequence[FileCanary]) -> str | None:
    """Patch of a file, with its path in the repository; None where it is not readable here, or differs."""
    replacements: list[Replacement] = []
    for one in changed:
        mine = _canary_replacements(suite, one)
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


def _canary_replacements(suite: str, changed: FileCanary) -> list[Replacement] | None:
    """Return the replacements of the judgments of a canary; of two that become one, the second is removed.

    None where a judgment that is not replaced would need another grade.
    """
    if changed.added and not changed.document.expected_chunks:
        return None
    after = CanaryDocument.model_validate(changed.body).expected_chunks
    left = {chunk.identity: chunk for chunk in after}
    result: list[Replacement] = []
    replaced = [chunk for chunk in changed.document.expected_chunks if judgment_name(chunk) in changed.edits]
    for chunk in changed.document.expected_chunks:
        if chunk not in replaced and left.pop(chunk.identity) != chunk:
            return None
    for chunk in replaced:
        new = [left.pop(one.identity, None) for one in changed.edits[judgment_name(chunk)]]
        result.append(
            Replacement(
                suite=suite, key=changed.canary.key, old=chunk, new=tuple(one for one in new if one is not None)
            )
        )
    return result


def _yaml(suite: str, changed: Sequence[FileCanary]) -> str:
    canaries = [CanaryDocument.model_validate(one.body) for one in changed]
    return write_canary_file(Documents(suites=(SuiteDocument(slug=suite, canaries=tuple(canaries)),)))


_MOST_SHOWN = 200


def yaml_changes(suite: str, changed: Sequence[FileCanary]) -> str:
    """Diffs of canaries whose judgments change, as YAML, for people to read: at most 200 of them, whoever owns them."""
    lines: list[str] = []
    for one in changed[:_MOST_SHOWN]:
        texts = [
            write_canary_file(Documents(suites=(SuiteDocument(slug=suite, canaries=(canary,)),)))
            for canary in (one.document, CanaryDocument.model_validate(one.body))
        ]
        before, after = (text.splitlines() for text in texts)
        lines += unified_diff(before, after, f"a/{one.canary.key}", f"b/{one.canary.key}", n=2, lineterm="")
    more = len(changed) - _MOST_SHOWN
    return "\n".join([*lines, *([f"# and {counted(more, 'canary')} more"] if more > 0 else [])])


def replacements_by_canary(rows: Iterable[ReanchorRow]) -> dict[int, dict[str, list[JudgmentDocument]]]:
    """Proposed judgments by canary id and name of the old judgment."""
    replacements: dict[int, dict[str, list[JudgmentDocument]]] = defaultdict(dict)
    for row in rows:
        name = judgment_name(JudgmentDocument.model_validate(row.judgment))
        replacements[row.canary_id][name] = proposed_documents(row)
    return replacements


def proposed_documents(row: ReanchorRow) -> list[JudgmentDocument]:
    """Documents of the judgments of a proposal."""
    return [JudgmentDocument.model_validate(one) for one in row.proposals]


def outdate_returned(
    connection: Connection, check_id: int, ranking_of: Callable[[int], Ranking | None], *, at: int
) -> None:
    """End the proposals of a check whose chunk is in the current ranking of its canary.

    `ranking_of` gives the ranking of a canary, by its id; None where it is as it was before.
    """
    back = [
        row.id for row in _proposed(connection, check_id) if (one := ranking_of(row.canary_id)) and _is_back(row, one)
    ]
    if back:
        diagnoses.decide_reanchors(connection, back, state=ReanchorState.OUTDATED, at=at, by=None)


def outdate_overtaken(connection: Connection, run: RunRow, canary_ids: Collection[int], *, at: int) -> None:
    """End the proposals of canaries diagnosed after a run whose chunk came back in a run that ended meanwhile.

    That later run had no proposals to end, and the runs after it have the same ranking.
    """
    newest = diagnoses.newest_run(connection, run.check_id)
    if newest is None or newest <= run.id or not canary_ids:
        return
    now = state_rows.rankings_at(connection, run.check_id, newest, list(canary_ids))
    rankings = ranking_rows.load_rankings(connection, [ranking_id for ranking_id, _ in now.values()])
    rankings_now = {canary: rankings[ranking_id] for canary, (ranking_id, _) in now.items()}
    outdate_returned(connection, run.check_id, rankings_now.get, at=at)


def _proposed(connection: Connection, check_id: int) -> Iterator[ReanchorRow]:
    """Yield all open proposals, newest first, in pages: large suites may have one for nearly every canary."""
    below: int | None = None
    while rows := diagnoses.list_reanchors(
        connection, check_id, state=ReanchorState.PROPOSED, before=below, limit=_MOST
    ):
        yield from rows
        if len(rows) < _MOST:
            return
        below = rows[-1].id


def _is_back(row: ReanchorRow, ranking: Ranking) -> bool:
    old = Judgment(id=row.judgment.get("id"), document=row.judgment.get("document"), text=row.judgment.get("text"))
    return is_back(old, None if row.texts is None else row.texts["old"], ranking)
