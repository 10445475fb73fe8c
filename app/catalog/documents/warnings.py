"""Warnings about valid documents without the intended effect; notes on thin suites, and on unknown names in silences.

Warnings have file and line where known. The documents are read in `canary_files`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime

from app.alerts.silences.documents import RULE
from app.base.errors import Problem
from app.base.texts import named_text
from app.base.values import ANSWERED_RATIO, Category, RuleKind
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.canary_files import Documents, Source
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.domain import is_top_heavy
from app.retrievers.domain.retrievers import ScorerKind
from app.scoring.measures import CUTOFFS
from app.scoring.suites import coverage_note, power_of

_NAMED = 3
_MOST = 20
"""Number of canaries of a suite that are named; the rest is counted."""
_BLIND_TO_RECALL = frozenset({"health_score", ANSWERED_RATIO, "duplicate_ratio"})
"""Measures that say nothing about what was not found."""


def find_warnings(documents: Documents) -> list[Problem]:
    """Return warnings on canaries that expect nothing, ignored bounds, dead cut-offs, blind rules and idle matrices."""
    warnings = list(documents.unset)
    warnings += [warning for suite in documents.suites for warning in _expecting_nothing(documents, suite)]
    for check in documents.checks:
        warnings += _check_warnings(documents, check)
    warnings += _matrix_warnings(documents)
    return warnings


def no_expectation_reason(canary: CanaryDocument) -> str | None:
    """Return why no answer to a canary can be wrong; None = one can."""
    if canary.category is Category.NEGATIVE or canary.expect_empty or canary.forbidden_chunks:
        return None
    if any(chunk.grade for chunk in canary.expected_chunks):
        return None
    how = "expects only chunks of grade 0" if canary.expected_chunks else "expects nothing"
    return f"{how}, so a wrong answer is never found; add expected_chunks, or 'category: negative' if none is right"


def blind_to_recall_reason(check: CheckDocument) -> str | None:
    """Return why rules miss a loss of recall, where they watch the top of the ranking alone; None = they do not.

    Of a list whose first hit is right MRR is 1 whatever else is missing. Without a full stop.
    """
    rules = check.rules_in_force
    if any(rule.kind in {RuleKind.REGRESSION, RuleKind.GUARD} for rule in rules):
        return None
    bounds = [rule for rule in rules if rule.kind in {RuleKind.THRESHOLD, RuleKind.DROP}]
    watched = dict.fromkeys(rule.measure for rule in bounds if rule.measure is not None)
    top_heavy = [measure for measure in watched if is_top_heavy(measure, check.k)]
    if not top_heavy or watched.keys() - top_heavy - _BLIND_TO_RECALL:
        return None
    recall = check.guide.recall
    return (
        f"its rules watch the first hits only ({', '.join(top_heavy)}), which can rise while recall falls; "
        f"add a rule on {recall} or 'kind: regression'"
    )


def text_of(warning: Problem) -> str:
    """Return a warning as a line, without its full stop."""
    place = f"{warning.file}:{warning.line}: " if warning.file else ""
    return f"{place}{warning.message}"


def suite_notes(documents: Documents) -> list[str]:
    """Return a line, without its full stop, for each thin suite."""
    notes = [
        coverage_note(suite.slug, power_of([canary.to_domain() for canary in suite.canaries or ()]))
        for suite in documents.suites
    ]
    return [note for note in notes if note is not None]


def silence_notes(documents: Documents, now: datetime) -> list[str]:
    """Return a line for each name in a silence that these documents do not define."""
    defined: dict[str, Collection[str]] = {
        "check": {check.slug for check in documents.checks},
        "suite": {suite.slug for suite in documents.suites},
        "retriever": {retriever.slug for retriever in documents.retrievers},
        RULE: {key for check in documents.checks for key in check.rule_keys},
    }
    return [
        f"silence '{silence.slug}': {problem.path}: {problem.message} in these files, so it is "
        f"refused unless the service has one"
        for silence in documents.silences
        if not silence.is_over(now)
        for _, _, problem in silence.unknown_references(defined.__getitem__)
    ]


def _expecting_nothing(documents: Documents, suite: SuiteDocument) -> Iterator[Problem]:
    canaries = [(canary, why) for canary in suite.canaries or () if (why := no_expectation_reason(canary))]
    for canary, why in canaries[:_MOST]:
        message = f"canary '{suite.slug}/{canary.key}' {why}"
        yield _warning_at(documents, ("canary", suite.slug, canary.key), message, path="expected_chunks")
    if len(canaries) > _MOST:
        yield Problem(message=f"suite '{suite.slug}' has {len(canaries) - _MOST:,} more canaries that expect nothing")


def _check_warnings(documents: Documents, check: CheckDocument) -> Iterator[Problem]:
    blind = blind_to_recall_reason(check)
    if blind is not None:
        yield _warning_at(documents, ("check", check.slug), f"check '{check.slug}': {blind}", path="rules")
    beyond = [cut for cut in check.cutoffs if cut > check.fetch_k]
    if beyond and check.cutoffs != CUTOFFS:
        cuts = ", ".join(str(cut) for cut in beyond)
        message = (
            f"check '{check.slug}' asks for {check.fetch_k} hits (fetch_k), so measures at {cuts} stay undefined; "
            f"raise fetch_k to {max(beyond)} or take {cuts} out of its cutoffs"
        )
        yield _warning_at(documents, ("check", check.slug), message, path="cutoffs")
    if check.plant is not None and check.plant.commands:
        message = (
            f"check '{check.slug}' plants by a command, which 'coalmine plant' runs; 'serve' and 'apply' refuse it"
        )
        yield _warning_at(documents, ("check", check.slug), message, path="plant")
    retriever = next((one for one in documents.retrievers if one.slug == check.retriever), None)
    suite = next((one for one in documents.suites if one.slug == check.suite), None)
    if suite is None or retriever is None or retriever.to_domain().scorer.kind is not ScorerKind.JUDGED:
        return
    default = CanaryDocument.model_fields["min_relevance_score"].default
    bounded = [canary for canary in suite.canaries or () if canary.min_relevance_score != default]
    if bounded:
        first = bounded[0]
        more = f" (and {len(bounded) - 1:,} more)" if len(bounded) > 1 else ""
        message = (
            f"canary '{suite.slug}/{first.key}'{more} sets min_relevance_score, which check '{check.slug}' ignores: "
            f"the scorer of retriever '{retriever.slug}' is 'judged', which measures no relevance"
        )
        yield _warning_at(documents, ("canary", suite.slug, first.key), message, path="min_relevance_score")


def _matrix_warnings(documents: Documents) -> Iterator[Problem]:
    """Yield a warning for each variable of a matrix that every canary of the suite sets itself."""
    canaries = {suite.slug: suite.canaries or () for suite in documents.suites}
    groups: dict[tuple[Source | None, str, str], list[CheckDocument]] = defaultdict(list)
    for check in documents.checks:  # those of one matrix stand at one place of a file
        groups[documents.sources.get(("check", check.slug)), check.suite, check.retriever].append(check)
    for (source, suite, _), checks in groups.items():
        asked = canaries.get(suite)
        if source is None or not asked:
            continue
        varied = [name for name in checks[0].vars if len({check.vars.get(name) for check in checks}) > 1]
        for name in varied:
            if all(name in canary.vars for canary in asked):
                slugs = named_text([check.slug for check in checks], _NAMED)
                message = (
                    f"checks {slugs} differ in '{name}', which every canary of suite '{suite}' sets itself, so it "
                    f"changes nothing that they ask; take it out of the matrix, or out of the vars of the canaries"
                )
                yield _warning_at(documents, ("check", checks[0].slug), message, path="matrix")


def _warning_at(documents: Documents, identity: tuple[str, ...], message: str, *, path: str) -> Problem:
    source = documents.sources.get(identity)
    file, line = (None, None) if source is None else (source.file, source.line)
    return Problem(message=message, path=path, file=file, line=line)
