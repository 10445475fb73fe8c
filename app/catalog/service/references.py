"""References between definitions, their owners, and planned changes: what must exist, and what may be changed.

A check refers to a suite, a retriever, hooks and a judge; the floors of its canaries refer to the measures its runs
compute. A definition that others need is not archived, and one of a file is changed by that file alone. Checks, runs
and definitions that routes name are found here, or NotFoundError says which is missing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from app.answers.documents import JudgeDocument
from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.documents.fields import Document
from app.base.errors import (
    ConfigurationError,
    ConflictError,
    FileManagedError,
    InvalidInputError,
    NotFoundError,
    Problem,
    UnendedIncidentsError,
)
from app.base.schedules import Schedule, credible_until, parse_schedule
from app.base.texts import counted
from app.base.vault import Vault
from app.base.views import id_number
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.documents import (
    CheckDocument,
    content_hash,
    destinations,
    join_secrets,
    secret_names,
    split_secrets,
)
from app.catalog.service.snapshots import SuiteOvertakenError, load_suite_in_force
from app.catalog.store import CanaryHead, CanaryRow, Content, Definition
from app.hooks import store as outbox
from app.hooks.documents import HookDocument, receivers
from app.records.store import results
from app.records.store.results import RunRow
from app.retrievers.documents.retrievers import RetrieverDocument
from app.scoring.suites import SuiteFloors, UnusableSuiteError

FILE, API = "file", "api"


def require_references(connection: Connection, check: CheckDocument, revision: int | None) -> None:
    """Raise InvalidInputError unless everything a check refers to exists; it is locked until the transaction ends.

    The suite is cached at `revision`, see `load_suite_of`; SuiteOvertakenError where it has another by now.
    """
    present = {kind: catalog.hold_definitions(connection, kind, slugs) for kind, slugs in references_of(check).items()}
    problems = missing_references(check, present)
    unfit = check.unfit_report_hooks(hook_kinds(connection, check))
    problems += [Problem(path="report.hooks", message=message) for message in unfit]
    if not problems:
        suite = require(catalog.find_definition(connection, "suite", check.suite), f"suite '{check.suite}'")
        if suite.revision != revision:
            raise SuiteOvertakenError
        floors = load_suite_in_force(connection, suite).floors
        problems = [Problem(path="suite", message=message) for _, message in check.uncomputed_floors(floors)]
        problems += [Problem(path="rules", message=message) for message in check.unknown_canaries(floors.keys)]
        problems += answer_problems(check, gives_answers=gives_answers(connection, check.retriever))
    if problems:
        raise InvalidInputError(problems)


def load_suite_of(connection: Connection, document: Document) -> int | None:
    """Load the suite of a check into the cache before the transaction of `require_references`; return its revision.

    None where there is none, or the document is no check.
    """
    if not isinstance(document, CheckDocument):
        return None
    suite = catalog.find_definition(connection, "suite", document.suite)
    if suite is None:
        return None
    with suppress(UnusableSuiteError):
        assert load_suite_in_force(connection, suite).floors is not None  # noqa: S101 - read for its effect
    return suite.revision


def require_floors(connection: Connection, suite: str, floors: SuiteFloors) -> None:
    """Raise InvalidInputError for floors on measures that a check of the suite does not compute.

    On PostgreSQL the caller has locked the suite's row, so that no other check is saved for it meanwhile.
    """
    if not floors.measures:
        return
    problems = [
        Problem(path="floors", message=message)
        for check in checks_in_force(connection)
        if check.suite == suite
        for _, message in check.uncomputed_floors(floors)
    ]
    if problems:
        raise InvalidInputError(problems)


def refuse_used(connection: Connection, kind: str, slug: str) -> None:
    """Raise ConflictError where a check refers to a definition.

    On PostgreSQL the caller has locked the definition's row, so that a check saved meanwhile waits for it.
    """
    users = [check.slug for check in checks_in_force(connection) if slug in references_of(check).get(kind, ())]
    if users:
        raise ConflictError(f"{kind} '{slug}' is used by check {', '.join(users)}; change or delete that first")


def refuse_named(connection: Connection, suite: str, keys: Collection[str]) -> None:
    """Raise ConflictError where a rule of a check is about one of these canaries, which leave their suite."""
    for check in checks_in_force(connection):
        for rule in check.rules if check.suite == suite else ():
            if rule.canary in keys:
                raise ConflictError(
                    f"canary '{suite}/{rule.canary}' is named by rule '{rule.key}' of check '{check.slug}'; "
                    "change that first"
                )


def checks_in_force(connection: Connection) -> list[CheckDocument]:
    """Return every check that is not archived."""
    return [CheckDocument.model_validate(row.body) for row in catalog.list_definitions(connection, "check")]


def references_of(check: CheckDocument) -> dict[str, tuple[str, ...]]:
    """Return the slugs a check refers to, by kind."""
    of_report = check.report.hooks if check.report else ()
    hooks = tuple(dict.fromkeys((*check.hooks, *of_report)))
    judges = () if check.judge is None else (check.judge,)
    return {"suite": (check.suite,), "retriever": (check.retriever,), "hook": hooks, "judge": judges}


def missing_references(check: CheckDocument, present: Mapping[str, Collection[str]]) -> list[Problem]:
    """Return a problem for each reference of a check that is not among the present slugs of its kind."""
    return [
        Problem(path=_place_of(check, kind, slug), message=f"there is no {kind} '{slug}'")
        for kind, slugs in references_of(check).items()
        for slug in slugs
        if slug not in present[kind]
    ]


def _place_of(check: CheckDocument, kind: str, slug: str) -> str:
    """Return the field of a check that refers to a definition."""
    if kind != "hook":
        return kind
    return "hooks" if slug in check.hooks else "report.hooks"


def answer_problems(check: CheckDocument, *, gives_answers: bool) -> list[Problem]:
    """Return a problem for everything of a check that is about answers, where its retriever gives none."""
    found = check.without_answers(gives_answers=gives_answers)
    return [Problem(path=field, message=message) for field, message in found]


def gives_answers(connection: Connection, retriever: str) -> bool:
    """Whether a stored retriever gives answers besides hits; one that is not there gives none."""
    row = catalog.find_definition(connection, "retriever", retriever)
    return row is not None and bool(row.body.get("answer") or row.body["response"].get("answer"))


def hook_kinds(connection: Connection, check: CheckDocument) -> dict[str, str]:
    """Return the kinds of the stored hooks that the reports of a check are sent to, by slug."""
    hooks = (catalog.find_definition(connection, "hook", slug) for slug in (check.report.hooks if check.report else ()))
    return {hook.slug: str(hook.body["kind"]) for hook in hooks if hook is not None}


def require(definition: Definition | None, name: str) -> Definition:
    """Return the definition. Raises NotFoundError where it is None or archived."""
    if definition is None or definition.archived_at is not None:
        raise NotFoundError(f"there is no {name}")
    return definition


def is_file_managed(thing: Definition | CanaryHead | None) -> bool:
    """Whether a file owns it, and it is not archived."""
    return thing is not None and thing.managed_by == FILE and thing.archived_at is None


def refuse_file_managed(definition: Definition | None) -> None:
    """Raise FileManagedError for a file-managed definition."""
    if definition is not None and is_file_managed(definition):
        raise FileManagedError(
            f"{definition.kind} '{definition.slug}' is managed by {definition.source}; change it there and apply"
        )


def refuse_file_managed_canary(canary: CanaryHead, suite: str) -> None:
    """Raise FileManagedError for a file-managed canary."""
    if is_file_managed(canary):
        raise FileManagedError(
            f"canary '{suite}/{canary.key}' is managed by {canary.source}; change it there and apply"
        )


def find_check(connection: Connection, slug: str) -> Definition:
    """Return a check, also an archived one. Raises NotFoundError."""
    check = catalog.find_definition(connection, "check", slug)
    if check is None:
        raise NotFoundError(f"there is no check '{slug}'")
    return check


def find_run(connection: Connection, run_id: str) -> RunRow:
    """Return a run by its opaque id. Raises NotFoundError."""
    run = results.find_run(connection, id_number(run_id, "run"))
    if run is None:
        raise NotFoundError(f"there is no run '{run_id[:40]}'")
    return run


def last_completed(connection: Connection, check: catalog.Definition, now: datetime) -> datetime | None:
    """Return when a run of the check last completed, ignoring implausible times; None = never."""
    until = credible_until(schedule_of(check.body), now)
    completed = results.last_completed(connection, check.id, before=to_us(until))
    return from_us(completed) if completed is not None else None


def schedule_of(body: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a stored check."""
    schedule = body["schedule"]
    if schedule.get("every") is not None:
        return parse_schedule(every=schedule["every"])
    return parse_schedule(cron=schedule["cron"], timezone=schedule["timezone"])


def load_definition(store: Store, kind: str, slug: str) -> Definition:
    """Return a definition. Raises NotFoundError, also for an archived one."""
    with store.read() as connection:
        return require(catalog.find_definition(connection, kind, slug), f"{kind} '{slug}'")


def load_definitions(store: Store, kind: str, *, after: str = "", limit: int | None = None) -> list[Definition]:
    """Return the definitions of a kind, by slug, without archived ones."""
    with store.read() as connection:
        return catalog.list_definitions(connection, kind, after=after, limit=limit)


CanaryT = TypeVar("CanaryT", bound=CanaryHead)


def load_canary(store: Store, suite: str, key: str) -> CanaryRow:
    """Return a canary. Raises NotFoundError, also for an archived one."""
    with store.read() as connection:
        return require_canary(
            catalog.list_canaries(connection, require_suite(connection, suite).id, keys=[key]), suite, key
        )


def load_canaries(store: Store, suite: str, *, after: str = "", limit: int | None = None) -> list[CanaryRow]:
    """Return the canaries of a suite in order, those after the key `after`."""
    with store.read() as connection:
        return catalog.list_canaries(connection, require_suite(connection, suite).id, after=after, limit=limit)


def require_suite(connection: Connection, slug: str) -> Definition:
    """Return a suite. Raises NotFoundError, also for an archived one."""
    return require(catalog.find_definition(connection, "suite", slug), f"suite '{slug}'")


def require_canary(found: Iterable[CanaryT], suite: str, key: str) -> CanaryT:
    """Return the canary with this key of those found in a suite. Raises NotFoundError."""
    for canary in found:
        if canary.key == key:
            return canary
    raise NotFoundError(f"suite '{suite}' has no canary '{key}'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between a document and the stored definition."""

    kind: str
    name: str
    """The slug, for a canary `suite/key`."""
    action: str
    """create, update or archive."""
    fields: tuple[str, ...] = ()
    """Names of the fields that an update changes; values may be secret."""
    note: str | None = None


def definition_change(
    vault: Vault, kind: str, slug: str, before: Definition | None, content: Content, *, managed_by: str
) -> Change | None:
    """Return the change that saving a content makes; None = no change."""
    if before is None:
        return Change(kind=kind, name=slug, action="create")
    if before.archived_at is not None:
        return Change(kind=kind, name=slug, action="create", note="was archived")
    note = ownership_note(before, managed_by)
    if note is None and before.disabled_reason is not None:
        note = "was disabled"
    # With equal hashes only the order of tags and hooks can differ.
    fields = () if before.hash == content.hash else fields_changed(before.body, content.body)
    if _secrets_differ(vault, before, content):
        fields = (*fields, "secrets")
    if fields or note:
        return Change(kind=kind, name=slug, action="update", fields=fields, note=note)
    return None


def definition_content(vault: Vault, document: Document, *, previous: Definition | None = None) -> Content:
    """Return a document ready to be stored; null secrets are taken from `previous`, where given."""
    if isinstance(document, SuiteDocument):
        return suite_definition(document.slug)
    public, secrets = split_secrets(document)
    open_names = [name for name in secret_names(public) if name not in secrets]
    if open_names and previous is not None and previous.secrets is not None:
        stored = vault.decrypt(previous.secrets)
        secrets |= {name: stored[name] for name in open_names if name in stored}
    return Content(hash=content_hash(document), body=public, secrets=vault.encrypt(secrets))


def suite_definition(slug: str) -> Content:
    """Return a suite ready to be stored; its canaries are stored separately."""
    return Content(hash=slug, body={"slug": slug})


def refused_change(kind: str, name: str, before: Definition | CanaryHead, fields: tuple[str, ...]) -> Change:
    """Return a change that the API may not make; the note names the file that owns the object."""
    note = f"managed by {before.source}: refused here, change it there"
    return Change(kind=kind, name=name, action="update", fields=fields, note=note)


def archived_change(kind: str, name: str) -> Change:
    """Return the change of archiving a definition or a canary."""
    return Change(kind=kind, name=name, action="archive")


def ownership_note(before: Definition | CanaryHead, managed_by: str) -> str | None:
    """Return a note on a change of ownership; None = the owner stays."""
    return None if before.managed_by == managed_by else f"taken over from the {before.managed_by}"


def write_archive(connection: Connection, definition: Definition, *, now: int) -> None:
    """Archive a definition: a suite with its canaries; pending deliveries of a hook are abandoned."""
    catalog.archive_definition(connection, definition.id, now)
    if definition.kind == "hook":
        outbox.abandon_deliveries(connection, definition.id, "The hook was archived.")


def unended_incidents(
    connection: Connection,
    vault: Vault,
    before: Definition | None,
    after: Content | None,
    *,
    ended: Collection[str] = (),
) -> str | None:
    """Return the rest of a sentence: which incidents a change of a hook leaves open at its receiver; None = none.

    `after` is the hook's content afterwards, None = it is archived. `ended`: checks that end with the same change, so
    that the receiver hears of it.
    """
    if before is None or before.archived_at is not None or before.kind != "hook":
        return None
    left = _receivers(vault, before.body, before.secrets)
    if left is not None and after is not None:
        kept = _receivers(vault, after.body, after.secrets) or {}
        left = {identity: name for identity, name in left.items() if identity not in kept}
    if left is not None and not left:
        return None
    found = [one for one in outbox.unended_incidents(connection, before.id) if one[0] not in ended]
    if not found:
        return None
    names = ", ".join(left.values()) if left else "its receiver"
    classes = ", ".join(f"{incident_class} of check '{check}'" for check, incident_class in found)
    return f"leaves {counted(len(found), 'incident')} open at {names}, which will not hear of the end: {classes}"


def refuse_unended(sentence: str | None, hook: str, *, force: bool) -> None:
    """Raise UnendedIncidentsError where `unended_incidents` says something of a change that is not forced."""
    if sentence is not None and not force:
        raise UnendedIncidentsError(f"this change of hook '{hook}' {sentence}")


def _receivers(vault: Vault, body: Mapping[str, Any], secrets: bytes | None) -> dict[tuple[str, ...], str] | None:
    """Return the receivers of a stored hook; None where its secrets cannot be read."""
    try:
        return receivers(join_secrets(body, vault.decrypt(secrets)))
    except ConfigurationError:
        return None


def fields_changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the fields that differ; stored bodies have defaults for fields newer than them.

    A different hash alone is no change: an older release may have computed it differently.
    """
    return tuple(name for name in sorted({*before, *after}) if before.get(name) != after.get(name))


def _secrets_differ(vault: Vault, before: Definition, content: Content) -> bool:
    try:
        return vault.decrypt(before.secrets) != vault.decrypt(content.secrets)
    except ConfigurationError:  # encrypted under another key, thus unusable: the new ones replace them
        return True


def slug_taken_error(connection: Connection, kind: str, slug: str) -> ConflictError:
    """Return the error of a slug in use, with a similar one that was never used."""
    return _taken_error(
        kind, slug, 64, lambda names: [one for one in names if catalog.find_definition(connection, kind, one)]
    )


def key_taken_error(connection: Connection, suite_id: int, key: str) -> ConflictError:
    """Return the error of a key in use, with a similar free one."""
    listed = partial(catalog.list_canaries, connection, suite_id, archived=True)
    return _taken_error("canary", key, 128, lambda names: [row.key for row in listed(keys=names)])


def _taken_error(kind: str, name: str, longest: int, taken: Callable[[list[str]], list[str]]) -> ConflictError:
    """Return the error; the similar name has a number appended (`docs-2`), and at most `longest` characters."""
    names = [f"{name[: longest - 2].rstrip('-')}-{number}" for number in range(2, 10)]
    used = taken(names)
    free = next((one for one in names if one not in used), "")
    other = f"another name, such as '{free}'," if free else "another name,"
    return ConflictError(f"there is a {kind} '{name}' already; choose {other} or change that one")


def refuse_moving(
    before: Definition, document: RetrieverDocument | HookDocument | JudgeDocument, stored: Iterable[str]
) -> None:
    """Raise InvalidInputError where the `stored` secrets would be sent to another address than they were stored for.

    Otherwise whoever may change an address could read them on a server of their own.
    """
    after = document.data()
    message = "a stored value is not sent to another address than the one it was stored for; enter the value again"
    moved = [name for name in stored if destinations(after, name) != destinations(before.body, name)]
    if moved:
        raise InvalidInputError([Problem(path=name, message=message) for name in moved])
