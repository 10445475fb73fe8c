"""References between definitions, what must exist and what others need; and the finder of whatever a route names.

A check refers to a suite, a retriever, hooks and a judge; the floors of its canaries refer to the measures its runs
compute. A definition that others need is not archived. Below that the finder of all subjects, from `find_check` on:
checks, runs, definitions and canaries that routes name, or NotFoundError says which is missing. The checks of each
retriever stand at the end, with how their last runs ended.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.documents.fields import did_you_mean, path_of
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.schedules import Schedule, credible_until, parse_schedule
from app.base.texts import counted, listed, measure_words
from app.base.values import ANSWER_MEASURES, JUDGED, LatencyView, Value, judged_name
from app.base.views import id_number, id_text
from app.catalog import store as catalog
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.store import CanaryHead, CanaryRow, Definition, require
from app.records.domain import RunDetails
from app.records.store import run_rows
from app.records.store.run_rows import RunRow
from app.retrievers.documents.retrievers import no_credentials
from app.scoring.run_inputs import SuiteSnapshot
from app.scoring.suites import SuiteFloors


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
    return [row.read(CheckDocument) for row in catalog.list_definitions(connection, "check")]


def references_of(check: CheckDocument) -> dict[str, tuple[str, ...]]:
    """Return the slugs a check refers to, by kind."""
    of_report = check.report.hooks if check.report else ()
    hooks = tuple(dict.fromkeys((*check.hooks, *of_report)))
    judges = () if check.judge is None else (check.judge,)
    retrievers = [check.retriever, *([check.plant.credentials] if check.plant and check.plant.credentials else [])]
    return {"suite": (check.suite,), "retriever": tuple(dict.fromkeys(retrievers)), "hook": hooks, "judge": judges}


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
    if kind == "retriever" and slug != check.retriever:
        return "plant.credentials"
    if kind != "hook":
        return kind
    return "hooks" if slug in check.hooks else "report.hooks"


def answer_problems(check: CheckDocument, *, gives_answers: bool) -> list[Problem]:
    """Return a problem for everything of a check that is about answers, where its retriever gives none."""
    found = check.without_answers(gives_answers=gives_answers)
    return [Problem(path=field, message=message) for field, message in found]


def unknown_vars(connection: Connection, check: CheckDocument) -> list[Problem]:
    """Return a problem for every variable of a check that is no option of its stored retriever."""
    row = catalog.find_definition(connection, "retriever", check.retriever) if check.vars else None
    options = {} if row is None else row.body.get("options") or {}
    what = f"is no option of retriever '{check.retriever}'"
    unknown = [name for name in check.vars if row is not None and name not in options]
    how = {name: did_you_mean(name, options) or f"; write options: {{{name}: <default>}} there" for name in unknown}
    problems = [Problem(path=f"vars.{name}", message=f"{what}{how[name]}") for name in unknown]
    by, of = _identities_of(row)
    if by in check.vars and check.vars[by] not in of:
        problems.append(Problem(path=f"vars.{by}", message=no_credentials(check.retriever, check.vars[by], of)))
    return problems


def unasked_canaries(connection: Connection, check: CheckDocument, suite: SuiteSnapshot) -> list[Problem]:
    """Return a problem where the stored retriever of a check has no credentials to ask some canaries with."""
    row = catalog.find_definition(connection, "retriever", check.retriever)
    by, of = _identities_of(row)
    if row is None or not by:
        return []
    default = {} if by in check.vars else {by: row.body["options"][by]}
    values = {one.key: values[by] for one in suite.members if by in (values := {**default, **one.canary.vars})}
    unknown = {key: value for key, value in values.items() if value not in of}
    if not unknown:
        return []
    key, value = next(iter(unknown.items()))
    more = f" (and {counted(len(unknown) - 1, 'more canary')})" if len(unknown) > 1 else ""
    message = f"the {by} of canary '{key}'{more} {no_credentials(check.retriever, value, of)}"
    return [Problem(path="suite", message=message)]


def _identities_of(retriever: Definition | None) -> tuple[str, Collection[str]]:
    """Return the variable by which a stored retriever is asked as somebody, "" for none, and who has credentials."""
    auth = (retriever.body.get("auth") if retriever is not None else None) or {}
    return str(auth.get("by") or ""), auth.get("of") or {}


def writer_of(check: CheckDocument) -> str:
    """Return the retriever whose variables the requests of a check's plant may hold."""
    named = None if check.plant is None else check.plant.credentials
    return named or check.retriever


NO_COMMANDS: Final = (
    "is run by `coalmine plant` alone, on the machine it is started on: the service runs no commands; write url or sql"
)


def plant_problems(check: CheckDocument, writer: Mapping[str, Any] | None) -> list[Problem]:
    """Return a problem for every variable of a check's plant that its retriever, given as JSON, does not have.

    And for every command: the service runs none, whoever defines it.
    """
    if check.plant is not None and check.plant.commands:
        return [Problem(path=path_of(("plant", *place)), message=NO_COMMANDS) for place in check.plant.commands]
    if check.plant is None or writer is None:
        return []
    lookup, embeds = writer.get("lookup"), writer.get("embedding") is not None
    unknown = check.plant.unknown_names(writer.get("options") or {}, lookup and lookup["name"], embeds=embeds)
    return [Problem(path=path_of(("plant", *place)), message=message) for place, message in unknown]


def gives_answers(connection: Connection, retriever: str) -> bool:
    """Whether a stored retriever gives answers besides hits; one that is not there gives none."""
    row = catalog.find_definition(connection, "retriever", retriever)
    return row is not None and bool(row.body.get("answer") or row.body["response"].get("answer"))


def unmeasured_answers(connection: Connection, check: Definition) -> dict[str, str]:
    """Return by measure, of the rules on answers, why runs do not have it as things are defined now; usually empty.

    Each is a clause: `judge 'small' is not asked about it`.
    """
    rules = [one for one in check.body.get("rules") or () if one.get("measure") in ANSWER_MEASURES]
    watched = dict.fromkeys(str(one["measure"]) for one in rules if one.get("enabled", True))
    if not watched:
        return {}
    retriever, judge = check.body["retriever"], check.body.get("judge")
    if not gives_answers(connection, retriever):
        return dict.fromkeys(watched, f"retriever '{retriever}' gives no answers any more")
    row = None if judge is None else catalog.find_definition(connection, "judge", judge)
    if row is None or row.archived_at is not None:
        asked: Collection[str] = ()
    else:
        asked = row.body.get("questions") or JUDGED  # what is not written is all
    return {
        measure: f"judge '{judge}' is not asked about it"
        for measure in watched
        if (said := judged_name(measure)) is not None and said not in asked
    }


def unmeasured_text(unmeasured: Mapping[str, str]) -> str:
    """Return what rules watch although nothing measures it, as a clause; empty where they watch nothing such."""
    measures: dict[str, list[str]] = {}
    for measure, why in unmeasured.items():
        measures.setdefault(why, []).append(measure_words(measure))
    return "; ".join(
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} not measured though a rule watches it: {why}"
        for why, names in measures.items()
    )


def hook_kinds(connection: Connection, check: CheckDocument) -> dict[str, str]:
    """Return the kinds of the stored hooks that the reports of a check are sent to, by slug."""
    hooks = (catalog.find_definition(connection, "hook", slug) for slug in (check.report.hooks if check.report else ()))
    return {hook.slug: str(hook.body["kind"]) for hook in hooks if hook is not None}


def find_check(connection: Connection, slug: str) -> Definition:
    """Return a check, also an archived one. Raises NotFoundError."""
    check = catalog.find_definition(connection, "check", slug)
    if check is None:
        raise NotFoundError(f"there is no check '{slug}'")
    return check


def find_run(connection: Connection, run_id: str) -> RunRow:
    """Return a run by its opaque id. Raises NotFoundError."""
    run = run_rows.find_run(connection, id_number(run_id, "run"))
    if run is None:
        raise NotFoundError(f"there is no run '{run_id[:40]}'")
    return run


def last_completed(connection: Connection, check: catalog.Definition, now: datetime) -> datetime | None:
    """Return when a run of the check last completed, ignoring implausible times; None = never."""
    until = credible_until(schedule_of(check.body), now)
    completed = run_rows.last_completed(connection, check.id, before=to_us(until))
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


class RetrieverCheck(Value):
    """A check that uses a retriever, with its last ended run."""

    check: str
    suite: str
    run_id: str | None
    """None before the first."""
    ended_at: datetime | None
    outcomes: Mapping[str, int]
    """Number of probes by outcome; empty where the run could not be executed."""
    latency: LatencyView | None


def checks_by_retriever(store: Store) -> dict[str, list[RetrieverCheck]]:
    """Return the checks in force by the slug of their retriever."""
    checks: dict[str, list[RetrieverCheck]] = {}
    with store.read() as connection:
        newest = run_rows.latest_bodies(connection)
        times = run_rows.run_times(connection, [run_id for run_id, _ in newest.values()])
        for check in catalog.list_definitions(connection, "check"):
            run_id, body = newest.get(check.id, (None, RunDetails()))
            at = None if run_id is None else times.get(run_id)
            checks.setdefault(str(check.body["retriever"]), []).append(
                RetrieverCheck(
                    check=check.slug,
                    suite=str(check.body["suite"]),
                    run_id=id_text(run_id),
                    ended_at=None if at is None else from_us(at),
                    outcomes=body.get("probes", {}),
                    latency=body.get("latency_seconds"),
                )
            )
    return checks
