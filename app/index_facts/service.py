"""Facts of an index read once a run, after its answers; and as pages, programs and metrics show them.

What cannot be read is unknown, with a reason: nothing here fails a run, or holds it up for longer than the bounds.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from typing import Any, Final

import msgspec

from app.base.addresses import IdentityAuth
from app.base.db.engine import Connection, Store
from app.base.errors import CoalmineError
from app.base.values import EMPTY, Answer, Outcome, Ranking, replace
from app.base.views import rounded_or_none, time_text
from app.catalog.service.references import find_check, find_run
from app.detection import store as detector_rows
from app.index_facts import store as rows
from app.index_facts.domain import (
    EXACT_RECALL,
    Fact,
    FactValueView,
    IndexFactView,
    IndexRunView,
    IndexSeriesView,
    KnownFact,
    RunFactsView,
    exact_recall,
    recall_against,
    sampled,
    usual_of,
)
from app.records.service.plans import Plan
from app.records.store import ranking_rows, run_rows
from app.retrievers.domain.probes import error_text
from app.retrievers.domain.retrievers import (
    PLACEHOLDER,
    Dialect,
    FactRequest,
    Lane,
    Probe,
    ProbeContext,
    ProbeQuery,
    Retriever,
    Scorer,
    ScorerKind,
)

logger = logging.getLogger("coalmine.runs")

FACTS_SECONDS: Final = 5.0
"""For all facts of a run together."""
EXACT_SECONDS: Final = 15.0
"""For all exact searches of a run together."""
_EXACT_AT_ONCE: Final = 2
"""Exact searches read the whole index: fewer at a time than the retriever takes of others."""
_UNSCORED: Final = Scorer(kind=ScorerKind.JUDGED)
"""Nobody else is asked how relevant hits are, and scores of an exact search may be on another scale."""
_BUG: Final = "an error in Coalmine; the log has the details"


def read_facts(
    store: Store,
    probe: Probe,
    plan: Plan,
    ranking_ids: Sequence[int | None],
    *,
    lane: Lane | None = None,
    ended_early: str | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> list[Fact]:
    """Return the facts of the index of a run's retriever; unknown ones with the reason. Empty where it tells none.

    `ranking_ids`: of what the canaries of the run found, by position. `ended_early`: why no more is asked.
    """
    retriever = plan.inputs.retriever
    if not retriever.facts and retriever.exact is None:
        return []
    if ended_early is not None:
        why = "the run was ended early"
        found = [Fact(name=one.name, reason=why) for one in retriever.facts]
        found += [] if retriever.exact is None else [Fact(name=EXACT_RECALL, reason=why)]
    else:
        context = replace(plan.asking(lane), patience_seconds=0.0)
        found = [
            *ask_facts(probe, context, stopping, variables=plan.inputs.vars),
            *_exact_recall(store, probe, plan, context, ranking_ids, stopping),
        ]
    sources = source_of(retriever, plan.inputs.yardstick.k, plan.inputs.vars)
    return [replace(one, source=sources[one.name]) for one in found]


def source_of(retriever: Retriever, k: int, variables: Mapping[str, str]) -> dict[str, str]:
    """Return by fact what it is read of, as a digest: where another index is asked, or otherwise, it is another one."""
    where = [retriever.slug, retriever.url, {**retriever.options, **variables}]
    parts: dict[str, list[Any]] = {
        one.name: [*where, one.path, one.url, one.method, one.json, one.sql] for one in retriever.facts
    }
    exact = retriever.exact
    if exact is not None:
        different = [exact.url, exact.json, exact.sql, dict(exact.settings)]
        parts[EXACT_RECALL] = [*where, k, retriever.json, retriever.sql, *different]
    encode = msgspec.json.Encoder(order="deterministic").encode
    return {name: blake2b(encode(part), digest_size=8).hexdigest() for name, part in parts.items()}


def ask_facts(
    probe: Probe, context: ProbeContext, stopping: Callable[[], bool], *, variables: Mapping[str, str] = EMPTY
) -> Iterator[Fact]:
    """Yield what the store tells; requests that are alike are sent once, with the variables of the check."""
    requests: dict[str, list[FactRequest]] = {}
    for one in context.retriever.facts:
        requests.setdefault(repr((one.url, one.method, one.json, one.sql)), []).append(one)
    until = time.monotonic() + FACTS_SECONDS
    for alike in requests.values():
        left = until - time.monotonic()
        why: str | None = None
        answers: dict[int, Answer] = {}
        if left > 0:
            asked = replace(context, retriever=fact_retriever(context.retriever, alike, left))
            query = ProbeQuery(query="", vars=_variables(asked.retriever, variables))
            answers, why = _ask(probe, asked, [query], until, stopping)
        yield from _read(alike, answers.get(0), why or f"all facts together may take {FACTS_SECONDS:g} s")


def _read(requests: Sequence[FactRequest], answer: Answer | None, why: str) -> Iterator[Fact]:
    if answer is None:
        yield from (Fact(name=one.name, reason=why) for one in requests)
    elif answer.ranking is None:
        failure = f"the retriever {error_text(answer.outcome, answer.http_status, answer.detail)}"
        yield from (Fact(name=one.name, reason=failure) for one in requests)
    else:
        ranking = answer.ranking
        numbers = dict(zip(ranking.ids, zip(ranking.scores, ranking.texts, strict=True), strict=True))
        for one in requests:
            value, reason = numbers.get(one.name, (None, None))
            yield Fact(name=one.name, value=value, reason=None if value is not None else reason or "it was not told")


def _variables(retriever: Retriever, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a request for facts takes: a statement has only those that it names."""
    if retriever.dialect is not Dialect.SQL:
        return dict(variables)
    as_whom = {retriever.auth.by} if isinstance(retriever.auth, IdentityAuth) else set()
    named = as_whom | {name for name in variables if re.search(rf"(?<!:):{name}\b", retriever.sql or "")}
    return {name: value for name, value in variables.items() if name in named}


def fact_retriever(retriever: Retriever, requests: Sequence[FactRequest], seconds: float) -> Retriever:
    """Return a retriever whose request is for these facts: it is asked as any, by the same limits and guards."""
    one = requests[0]
    timeout = max(0.1, min(retriever.timeout_seconds, seconds))
    plain = replace(
        retriever,
        reads={each.name: each.path for each in requests},
        embedder=None,
        scorer=_UNSCORED,
        answer=None,
        retries=0,
        timeout_seconds=timeout,
    )
    if one.sql is not None or one.url is None:
        return replace(plain, sql=one.sql)
    lookup = retriever.lookup
    used = {name for text in (one.url, msgspec.json.encode(one.json).decode()) for name in PLACEHOLDER.findall(text)}
    return replace(
        plain,
        dialect=Dialect.HTTP,
        sql=None,
        tool=None,
        url=one.url,
        method=one.method,
        query_parameters={},
        json=one.json,
        lookup=lookup if lookup is not None and lookup.name in used else None,
    )


def exact_retriever(retriever: Retriever, seconds: float) -> Retriever | None:
    """Return a retriever whose requests search the whole index; None = it is not known how."""
    exact = retriever.exact
    if exact is None:
        return None
    return replace(
        retriever,
        is_exact=True,
        url=exact.url or retriever.url,
        json=retriever.json if exact.json is None else exact.json,
        sql=exact.sql or retriever.sql,
        settings=exact.settings,
        scorer=_UNSCORED,
        answer=None,
        retries=0,
        timeout_seconds=seconds,
        concurrency=min(_EXACT_AT_ONCE, retriever.concurrency),
    )


def _exact_recall(
    store: Store,
    probe: Probe,
    plan: Plan,
    context: ProbeContext,
    ranking_ids: Sequence[int | None],
    stopping: Callable[[], bool],
) -> list[Fact]:
    exact, retriever = context.retriever.exact, exact_retriever(context.retriever, EXACT_SECONDS)
    if exact is None or retriever is None:
        return []
    inputs, k = plan.inputs, plan.inputs.yardstick.k
    measured = {place: inputs.suite.keys[place] for place, one in enumerate(ranking_ids) if one is not None}
    places = sampled(measured, exact.canaries, f"exact {plan.run.id}")
    if not places:
        return [Fact(name=EXACT_RECALL, reason="no canary was measured")]
    try:
        returned = _rankings(store, plan, {place: one for place in places if (one := ranking_ids[place]) is not None})
    except CoalmineError as error:
        return [Fact(name=EXACT_RECALL, reason=str(error))]
    lane = context.lane
    if lane is not None:
        lane = replace(lane, concurrency=min(_EXACT_AT_ONCE, lane.concurrency))
    asked = replace(context, retriever=retriever, lane=lane)
    until = time.monotonic() + EXACT_SECONDS
    asks = [ask for ask in inputs.asks if ask.position in returned]
    answers, why = _ask(probe, asked, asks, until, stopping)
    failed = [one for one in answers.values() if one.ranking is None]
    if why is None and failed:
        why = f"the retriever {error_text(failed[0].outcome, failed[0].http_status, failed[0].detail)}"
    elif why is None and len(answers) < len(asks):
        why = f"they may take {EXACT_SECONDS:g} s together"
    recalls = [
        recall_against(returned[place], one.ranking, k)
        for place, one in answers.items()
        if one.outcome is Outcome.OK and one.ranking is not None
    ]
    known = [one for one in recalls if one is not None]
    nothing = len(recalls) - len(known)  # of what an exact search does not find, nothing can be lost
    if recalls and not known:
        return [Fact(name=EXACT_RECALL, reason="exact search finds nothing")]
    return [exact_recall(known, len(asks) - nothing, k, why)]


def _rankings(store: Store, plan: Plan, ids: Mapping[int, int]) -> dict[int, Ranking]:
    """Return what canaries found, by position."""
    unread = [one for one in ids.values() if one not in plan.rankings]
    with store.read() as connection:
        stored = ranking_rows.load_rankings(connection, unread) if unread else {}
    found = {place: plan.rankings.get(one) or stored.get(one) for place, one in ids.items()}
    return {place: ranking for place, ranking in found.items() if ranking is not None}


def _ask(
    probe: Probe, context: ProbeContext, queries: Sequence[ProbeQuery], until: float, stopping: Callable[[], bool]
) -> tuple[dict[int, Answer], str | None]:
    """Ask until a time of the monotonic clock; returns the answers so far, and why there are no more."""
    answers: dict[int, Answer] = {}
    try:
        with closing(probe(context, queries)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            for batch in batches:
                answers.update(batch)
                if stopping():
                    return answers, "Coalmine was stopped"
                if time.monotonic() > until and len(answers) < len(queries):
                    return answers, None
    except CoalmineError as error:
        return answers, str(error)
    except Exception:  # a fact is never worth a run
        logger.exception("bug", extra={"run": context.run_id, "retriever": context.retriever.slug})
        return answers, _BUG
    return answers, None


def accepted_run(connection: Connection, check_id: int) -> int:
    """Return the newest run when people last accepted the present as normal: what was before is not compared with."""
    choice = detector_rows.newest_choice(connection, check_id)
    return 0 if choice is None else choice.after_run


def known_of_run(connection: Connection, check_id: int, run_id: int, facts: Sequence[Fact]) -> list[KnownFact] | None:
    """Return the facts of a run that is about to end with what was known before it; None = it has none."""
    if not facts:
        return None
    after = accepted_run(connection, check_id)
    return rows.with_past(facts, rows.past_values(connection, check_id, before=run_id, after=after), run_id)


def load_run_facts(store: Store, run_id: str) -> RunFactsView:
    """Return the facts of a run, each with what was usual before it. Raises NotFoundError."""
    with store.read() as connection:
        run = find_run(connection, run_id)
        return {"items": facts_of_run(connection, run.check_id, run.id)}


def facts_of_run(connection: Connection, check_id: int, run_id: int) -> list[IndexFactView]:
    """Return the facts of a run, each with what was usual before it."""
    found = rows.facts_of(connection, [run_id]).get(run_id, [])
    if not found:
        return []
    after = accepted_run(connection, check_id)
    past = rows.past_values(connection, check_id, before=run_id, after=after if after < run_id else 0)
    return [view_fact(one) for one in rows.with_past(found, past, run_id)]


def view_fact(known: KnownFact) -> IndexFactView:
    """Return a fact as it is shown, with what is wrong with it by default."""
    fact, last = known.fact, known.past[-1] if known.past else None
    usual = usual_of(fact.name, known.past)
    change = None
    if fact.value is not None and last is not None and last.value:
        change = (fact.value - last.value) / last.value
    return {
        "fact": fact.name,
        "value": rounded_or_none(fact.value),
        "reason": fact.reason,
        "low": rounded_or_none(fact.low),
        "high": rounded_or_none(fact.high),
        "canaries": fact.canaries,
        "before": None if last is None else rounded_or_none(last.value),
        "before_run": None if last is None else str(last.run_id),
        "change": rounded_or_none(change),
        "usual": None if usual is None else rounded_or_none(usual.value),
        "sentence": fact.sentence,
    }


def load_series(store: Store, slug: str, *, before: int | None = None, limit: int = 50) -> IndexSeriesView:
    """Return what runs of a check read of the index, newest first. Raises NotFoundError."""
    with store.read() as connection:
        check = find_check(connection, slug)
        run_ids = rows.runs_with_facts(connection, check.id, before=before, limit=limit + 1)
        shown = run_ids[:limit]
        facts = rows.facts_of(connection, shown)
        times = run_rows.run_times(connection, shown)
    items: list[IndexRunView] = [
        {
            "run": str(run_id),
            "at": time_text(times.get(run_id)),
            "facts": {one.name: _value_view(one) for one in facts.get(run_id, ())},
        }
        for run_id in shown
    ]
    return {"items": items, "next": str(shown[-1]) if len(run_ids) > limit else None}


def newest_values(connection: Connection) -> dict[int, dict[str, float]]:
    """Return the facts of the newest run of every check in force that reads any, by its id; unknown ones left out."""
    newest = rows.newest_of_checks(connection)
    return {
        check_id: {one.name: one.value for one in facts if one.value is not None} for check_id, facts in newest.items()
    }


def _value_view(fact: Fact) -> FactValueView:
    return {
        "value": rounded_or_none(fact.value),
        "reason": fact.reason,
        "low": rounded_or_none(fact.low),
        "high": rounded_or_none(fact.high),
    }
