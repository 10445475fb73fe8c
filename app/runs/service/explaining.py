"""`coalmine explain`: the question of one query, asked and judged as its check does, and explained; nothing is stored.

What asks is handed in, so that files and a running service are explained alike.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any, Final, Literal

from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError, Problem
from app.base.texts import named_text, variables_text
from app.base.values import EMPTY, Answer, Ranking, Value, Verdict, replace
from app.catalog.documents.canary_documents import CanaryDocument, JudgmentDocument, SuiteDocument, derive_key
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.check_documents import CheckDocument, build_inputs
from app.diagnosis.domain.query_explanations import (
    Earlier,
    ExactComparison,
    Explained,
    QueryExplanation,
    compare_exactly,
    earlier_view,
    explain_expected,
    explain_hits,
    needs_deeper,
    score_gaps,
    verdict_sentences,
)
from app.index_facts.service import EXACT_SECONDS, exact_retriever
from app.retrievers.domain.probes import error_text
from app.retrievers.domain.retrievers import Probe, ProbeContext, Retriever
from app.runs.service.gate import choose_targets, lone_target, result_view
from app.scoring.run_inputs import RunInputs, SuiteSnapshot, suite_hash
from app.scoring.run_outcomes import build_responses, evaluate, skipped_answer

Ask = Callable[[int], Answer]
"""Asks the query for so many hits, once."""
_NAMED: Final = 5


class Question(Value):
    """One query, put to a retriever as a check does, with what is expected of it."""

    check: CheckDocument
    retriever: Retriever
    canary: CanaryDocument
    is_canary: bool
    """Whether a canary of the suite has this question."""
    as_itself: bool
    """Whether that canary is asked with its own variables, so that its earlier answers are to the same question."""
    expected_by: Literal["canary", "options", "nothing"]

    @property
    def inputs(self) -> RunInputs:
        """A run of this canary alone."""
        hashed = suite_hash([(self.canary.key, self.canary.content_hash())])
        suite = SuiteSnapshot.from_canaries([self.canary.to_domain()], hashed)
        return build_inputs(suite, self.check, self.retriever, config_hash="")


def explain(
    question: Question,
    ask: Ask,
    *,
    clock: Callable[[], datetime],
    depth: int,
    before: Earlier | None = None,
    ask_exactly: Ask | None = None,
) -> QueryExplanation:
    """Ask a question and explain the answer; where an expected chunk is not in it, ask once more for `depth` hits.

    `ask_exactly` searches the whole index; None = the retriever knows no exact search, or nobody is to ask for it.
    """
    inputs, check = question.inputs, question.check
    canary = inputs.canaries[0]
    started_at = clock()
    answer = ask(check.fetch_k)
    responses = build_responses(inputs, [answer], started_at=started_at)
    outcome = evaluate(inputs, responses)
    result = result_view(inputs, responses, outcome, 0, answer)
    ranking = responses.rankings.get(0)
    deep = _ask_deeper(inputs, ask, depth) if ranking is not None and needs_deeper(canary, ranking) else None
    has_texts = inputs.retriever.response.text is not None
    one = Explained(
        canary=canary, k=check.k, result=result, ranking=ranking, deep=deep, before=before, has_texts=has_texts
    )
    expected = explain_expected(one)
    return {
        "query": canary.query,
        "key": canary.key if question.is_canary else None,
        "check": check.slug,
        "suite": check.suite,
        "retriever": check.retriever,
        "vars": {**inputs.retriever.options, **inputs.vars_of(canary)},
        "k": check.k,
        "fetch_k": check.fetch_k,
        "depth": None if deep is None else depth,
        "expected_by": question.expected_by,
        "outcome": result["outcome"],
        "detail": result["detail"],
        "latency_seconds": result["latency_seconds"],
        "verdict": Verdict(result["verdict"]),
        "reasons": result["reasons"],
        "why": verdict_sentences(canary, result),
        "measures": result["measures"],
        "forbidden_chunks": result["forbidden_chunks"],
        "hits": explain_hits(one),
        "expected": expected,
        "gaps": score_gaps(one, expected),
        "before": earlier_view(one),
        "exact": None if ask_exactly is None else _compare_exactly(one, ask_exactly(check.fetch_k)),
    }


def _compare_exactly(one: Explained, answer: Answer) -> ExactComparison:
    why = None if answer.ranking is not None else error_text(answer.outcome, answer.http_status, answer.detail)
    return compare_exactly(one, answer.ranking, why)


def _ask_deeper(inputs: RunInputs, ask: Ask, depth: int) -> Ranking | None:
    """Return the answer with more hits; None where the first had as many, or none came."""
    if depth <= inputs.yardstick.fetch_k:
        return None
    return build_responses(inputs, [ask(depth)]).rankings.get(0)


def asks_exactly_by(probe: Probe, question: Question, *, run_id: str) -> Ask | None:
    """Return what searches the whole index of a retriever of canary files; None = it is not known how."""
    exact = exact_retriever(question.retriever, EXACT_SECONDS)
    return None if exact is None else asks_by(probe, replace(question, retriever=exact), run_id=run_id)


def asks_by(probe: Probe, question: Question, *, run_id: str) -> Ask:
    """Return what asks a retriever of canary files, with the variables of the check and of the canary."""
    inputs = question.inputs
    (asked,) = inputs.asks

    def ask(hits: int) -> Answer:
        context = ProbeContext(
            retriever=inputs.retriever, k=hits, run_id=run_id, patience_seconds=inputs.patience_seconds
        )
        with closing(probe(context, [asked])) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            answers = [answer for batch in batches for _, answer in batch]
        return answers[0] if answers else skipped_answer(None)

    return ask


def choose_question(
    documents: Documents,
    question: str,
    *,
    check: str | None = None,
    url: str | None = None,
    expected: Sequence[JudgmentDocument] = (),
    variables: Mapping[str, str] = EMPTY,
) -> Question:
    """Return what canary files say of a question: of the canary that has it as its key or query, else of the check.

    Files without canaries are enough where their retriever is the only one. Raises InvalidInputError where several
    checks or canaries might be meant, and for `variables` that the retriever does not take.
    """
    has_canaries = any(suite.canaries for suite in documents.suites)
    targets = choose_targets(documents, check=check, url=url) if has_canaries else (lone_target(documents, url),)
    fitting = [target for target in targets if _with_question(target.suite, question)]
    found = fitting or targets
    if len(found) > 1:
        names = named_text([target.check.slug for target in found], _NAMED)
        asked = "ask it" if fitting else "might ask it"
        message = f"{len(found)} checks {asked}: {names}; name one with --check"
        raise InvalidInputError([Problem(path="--check", message=message)])
    (target,) = found
    unknown = target.retriever.unknown_vars(variables)
    if problems := [Problem(path="--var", message=f"'{name}' {why}") for name, why in unknown]:
        raise InvalidInputError(problems)
    canary = lone_canary(_with_question(target.suite, question), target.check, variables)
    return question_of(target.check, target.retriever.to_domain(), question, canary, expected, variables)


def _with_question(suite: SuiteDocument, question: str) -> list[CanaryDocument]:
    """Return the canary of a suite that has this key or, else, those with this query."""
    canaries, words = suite.canaries or (), question.split()
    named = [canary for canary in canaries if canary.key == question]
    return named or [canary for canary in canaries if canary.query.split() == words]


def lone_canary(
    canaries: Sequence[CanaryDocument], check: CheckDocument, variables: Mapping[str, str]
) -> CanaryDocument | None:
    """Return the canary with a question: of several the one that is asked with these variables; None = there is none.

    Raises InvalidInputError, with the keys, where several might be meant.
    """
    if len(canaries) < 2:  # noqa: PLR2004 - several
        return next(iter(canaries), None)
    fitting = [one for one in canaries if variables and variables.items() <= {**check.vars, **one.vars}.items()]
    if len(fitting) == 1:
        return fitting[0]
    several = fitting or canaries
    names = named_text([_named_with_variables(one) for one in several], _NAMED)
    message = f"{len(several)} canaries of suite '{check.suite}' have this query: {names}; name one by its key"
    raise InvalidInputError([Problem(path="QUESTION", message=message)])


def _named_with_variables(canary: CanaryDocument) -> str:
    return f"{canary.key} ({variables_text(canary.vars)})" if canary.vars else canary.key


def question_of(
    check: CheckDocument,
    retriever: Retriever,
    question: str,
    canary: CanaryDocument | None,
    expected: Sequence[JudgmentDocument],
    variables: Mapping[str, str] = EMPTY,
) -> Question:
    """Return a question of a check: of this canary, or of none.

    `expected` takes the place of what it expects, and `variables` that of its own where they have the same name.
    """
    body: dict[str, Any] = {"key": derive_key(question, {}), "query": question} if canary is None else canary.data()
    if expected:
        body["expected_chunks"] = [one.data() for one in expected]
    if variables:
        body["vars"] = {**body.get("vars", {}), **variables}
    document = parse_document(CanaryDocument, body)
    judged = document.expected_chunks or document.forbidden_chunks or document.expect_empty
    return Question(
        check=check,
        retriever=retriever,
        canary=document,
        is_canary=canary is not None,
        as_itself=canary is None or variables.items() <= {**check.vars, **canary.vars}.items(),
        expected_by="options" if expected else "canary" if judged else "nothing",
    )


def earlier_answer(report: Mapping[str, Any], question: Question, file: str) -> Earlier | None:
    """Return the answer to a question in a saved report; None where it has none."""
    key, words = question.canary.key, question.canary.query.split()
    same_query = [one for one in report["results"] if str(one.get("query")).split() == words]
    named = [one for one in report["results"] if one["key"] == key]
    meant = named or (same_query if len(same_query) == 1 else [])  # several: of whom it is, is not known
    result = next((one for one in meant if one.get("ranking")), None)
    if result is None:
        return None
    hits = result["ranking"]
    ranking = Ranking(
        ids=tuple(str(hit["id"]) for hit in hits),
        documents=tuple(hit.get("document") for hit in hits),
        texts=tuple(hit.get("text") for hit in hits),
        scores=tuple(hit.get("score") for hit in hits),
        returned=len(hits),
    )
    verdict = Verdict(result["verdict"])
    return Earlier(ranking=ranking, source=file, at=report["run"].get("finished_at"), verdict=verdict)
