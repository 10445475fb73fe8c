"""Warnings about valid documents without the intended effect; and checks whose suite or retriever is written inline.

Warnings have file and line where known.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from app.base.documents.fields import Document, parse_document
from app.base.errors import InvalidInputError, Problem
from app.base.values import ANSWERED_RATIO, Category, RuleKind
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.domain import is_top_heavy
from app.hooks.documents import HookDocument
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import ScorerKind
from app.scoring.measures import CUTOFFS

_MOST = 20
"""Number of canaries of a suite that are named; the rest is counted."""
_BLIND_TO_RECALL = frozenset({"health_score", ANSWERED_RATIO, "duplicate_ratio"})
"""Measures that say nothing about what was not found."""


def find_warnings(documents: Documents) -> list[Problem]:
    """Return warnings on canaries that expect nothing, ignored bounds, cut-offs beyond `fetch_k`, and blind rules."""
    warnings = list(documents.unset)
    warnings += [warning for suite in documents.suites for warning in _expecting_nothing(documents, suite)]
    for check in documents.checks:
        warnings += _check_warnings(documents, check)
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


def _warning_at(documents: Documents, identity: tuple[str, ...], message: str, *, path: str) -> Problem:
    source = documents.sources.get(identity)
    file, line = (None, None) if source is None else (source.file, source.line)
    return Problem(message=message, path=path, file=file, line=line)


DocumentReader = Callable[[type[RetrieverDocument | HookDocument], Mapping[str, Any]], Document]
"""Returns a document of a type from its JSON, with null secrets filled in; raises InvalidInputError."""

KeyAssigner = Callable[[str, Sequence[Any]], list[Any]]
"""Returns the canaries of a suite with derived keys where they have none."""

DocumentT = TypeVar("DocumentT", bound=Document)


def inline_kinds(body: Mapping[str, Any]) -> set[str]:
    """Return the kinds of definitions that are inline in a check."""
    kinds = {kind for kind in ("suite", "retriever") if isinstance(body.get(kind), dict)}
    hooks = body.get("hooks")
    return kinds | ({"hook"} if isinstance(hooks, list) and any(isinstance(one, dict) for one in hooks) else set())


def read_inline_check(body: Mapping[str, Any], read: DocumentReader, assign_keys: KeyAssigner) -> Documents:
    """Return the documents of a check with inline parts. Raises InvalidInputError with every problem and its path."""
    return _InlineCheckReader(body=body, read=read, assign_keys=assign_keys).documents()


@dataclass(slots=True, kw_only=True)
class _InlineCheckReader:
    body: Mapping[str, Any]
    read: DocumentReader
    assign_keys: KeyAssigner
    problems: list[Problem] = field(default_factory=list)

    def documents(self) -> Documents:
        check = dict(self.body)
        suite = self._part(check, "suite", SuiteDocument, self._suite)
        retriever = self._part(check, "retriever", RetrieverDocument, partial(self.read, RetrieverDocument))
        hooks = self._hooks(check)
        parsed = self._parse_at("", lambda: parse_document(CheckDocument, check))
        if self.problems or parsed is None:
            raise InvalidInputError(self.problems)
        return Documents(
            suites=() if suite is None else (suite,),
            retrievers=() if retriever is None else (retriever,),
            hooks=tuple(hooks),
            checks=(parsed,),
        )

    def _hooks(self, check: dict[str, Any]) -> list[HookDocument]:
        hooks = check.get("hooks")
        if not isinstance(hooks, list):
            return []
        check["hooks"] = hooks = list(hooks)
        documents = [
            self._part(hooks, place, HookDocument, partial(self.read, HookDocument), prefix=f"hooks[{place}]")
            for place in range(len(hooks))
        ]
        return [hook for hook in documents if hook is not None]

    def _part(
        self,
        holder: Any,
        place: str | int,
        model: type[DocumentT],
        parse: Callable[[Mapping[str, Any]], Document],
        *,
        prefix: str | None = None,
    ) -> DocumentT | None:
        """Return the document of an inline part and leave its slug in its place; None where there is only a slug."""
        part = holder[place] if isinstance(place, int) else holder.get(place)
        if not isinstance(part, dict):
            return None
        named = {"slug": self.body.get("slug"), **part}
        holder[place] = named["slug"]
        document = self._parse_at(prefix or str(place), lambda: parse(named))
        return document if isinstance(document, model) else None

    def _suite(self, part: Mapping[str, Any]) -> SuiteDocument:
        canaries = part.get("canaries")
        if canaries is None:
            raise InvalidInputError([Problem(path="canaries", message="the key 'canaries' is missing")])
        keyed = self.assign_keys(str(part.get("slug")), canaries) if isinstance(canaries, list) else canaries
        return parse_document(SuiteDocument, {**part, "canaries": keyed})

    def _parse_at(self, prefix: str, parse: Callable[[], DocumentT]) -> DocumentT | None:
        """Return a parsed part; None where it has problems, which are added with their path in the whole document."""
        try:
            return parse()
        except InvalidInputError as error:
            for one in error.problems:
                path = ".".join(part for part in (prefix, one.path) if part)
                self.problems.append(replace(one, path=path or None))
            return None
