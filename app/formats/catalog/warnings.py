"""Warnings about documents that are valid and yet without the effect intended, with file and line where known."""

from collections.abc import Iterator

from app.domain.errors import Problem
from app.domain.model import Category
from app.domain.probing.retrievers import ScorerKind
from app.domain.runs.measures import CUTOFFS
from app.formats.catalog.canary_documents import CanaryDocument, SuiteDocument
from app.formats.catalog.canary_files import Documents
from app.formats.catalog.documents import CheckDocument

_MOST = 20
"""Canaries of a suite that are named; the rest is counted."""


def warnings_of(wanted: Documents) -> list[Problem]:
    """Warn of what is in force without effect: canaries that expect nothing, ignored bounds, cut-offs never reached."""
    warnings = list(wanted.unset)
    warnings += [warning for suite in wanted.suites for warning in _expecting_nothing(wanted, suite)]
    for check in wanted.checks:
        warnings += _of_check(wanted, check)
    return warnings


def why_nothing_is_expected(canary: CanaryDocument) -> str | None:
    """Say why no answer to a canary can be found wrong by what it returns; None = one can."""
    if canary.category is Category.NEGATIVE or canary.expect_empty or canary.forbidden_chunks:
        return None
    if any(chunk.grade for chunk in canary.expected_chunks):
        return None
    how = "expects only chunks of grade 0" if canary.expected_chunks else "expects nothing"
    return f"{how}, so a wrong answer is never found; add expected_chunks, or 'category: negative' if none is right"


def text_of(warning: Problem) -> str:
    """Write a warning on a line, without its full stop."""
    place = f"{warning.file}:{warning.line}: " if warning.file else ""
    return f"{place}{warning.message}"


def _expecting_nothing(wanted: Documents, suite: SuiteDocument) -> Iterator[Problem]:
    canaries = [(canary, why) for canary in suite.canaries or () if (why := why_nothing_is_expected(canary))]
    for canary, why in canaries[:_MOST]:
        message = f"canary '{suite.slug}/{canary.key}' {why}"
        yield _at(wanted, ("canary", suite.slug, canary.key), message, path="expected_chunks")
    if len(canaries) > _MOST:
        yield Problem(message=f"suite '{suite.slug}' has {len(canaries) - _MOST:,} more canaries that expect nothing")


def _of_check(wanted: Documents, check: CheckDocument) -> Iterator[Problem]:
    beyond = [cut for cut in check.cutoffs if cut > check.fetch_k]
    if beyond and check.cutoffs != CUTOFFS:
        cuts = ", ".join(str(cut) for cut in beyond)
        message = (
            f"check '{check.slug}' asks for {check.fetch_k} hits (fetch_k), so measures at {cuts} stay undefined; "
            f"raise fetch_k to {max(beyond)} or take {cuts} out of its cutoffs"
        )
        yield _at(wanted, ("check", check.slug), message, path="cutoffs")
    retriever = next((one for one in wanted.retrievers if one.slug == check.retriever), None)
    suite = next((one for one in wanted.suites if one.slug == check.suite), None)
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
        yield _at(wanted, ("canary", suite.slug, first.key), message, path="min_relevance_score")


def _at(wanted: Documents, identity: tuple[str, ...], message: str, *, path: str) -> Problem:
    source = wanted.sources.get(identity)
    file, line = (None, None) if source is None else (source.file, source.line)
    return Problem(message=message, path=path, file=file, line=line)
