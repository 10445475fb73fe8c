"""Rules suggested for a check from its baseline, and how one of them is put in force."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from app.alerts.documents.rule_documents import RuleDocument
from app.alerts.documents.rule_yaml import rules_yaml
from app.alerts.domain.rules import COVERAGE, default_rule_key, is_silent_about_quality
from app.alerts.domain.suggested_bounds import suggested_bound
from app.alerts.service import normal_range
from app.base.db.engine import Connection, Store
from app.base.documents.validation_messages import parse_document
from app.base.values import RuleKind
from app.catalog.documents.documents import CheckDocument
from app.catalog.domain.measure_guide import Use
from app.catalog.service import definitions
from app.catalog.service.lookup import find_check
from app.catalog.service.vault import Vault
from app.detection.domain.views import SuggestedRule, SuggestedRuleBody, SuggestedRules
from app.detection.service import baselines
from app.records.store import series
from app.scoring.measures import Measure, mean_name

_DEEP: Final = 10


def suggest(store: Store, slug: str) -> SuggestedRules:
    """Bounds that a check has never been below while all was well, with the rules that would watch them.

    Empty, with a note, until a baseline stands. Raises NotFoundError.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        document = CheckDocument.model_validate(check.body)
        source = series.Source(check_id=check.id)
        suggestions = [_suggestion(connection, source, document, name) for name in _measures(document)]
    warm_up = baselines.show(store, slug).warm_up
    return SuggestedRules(
        check=slug,
        note=None if warm_up is None else warm_up.summary,
        revision=check.revision,
        managed_by=check.managed_by,
        guide=None if document.use is Use.GENERAL else document.guide.sentence,
        rules=[one for one in suggestions if one is not None],
    )


def adopt(store: Store, vault: Vault, slug: str, rule: Mapping[str, Any], *, revision: int, now: datetime) -> None:
    """Add a rule to an API-managed check of this revision, and write out the default that it would replace.

    Raises NotFoundError, FileManagedError, InvalidInputError, and ConflictError where somebody changed the check.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
    body = {**check.body, "rules": [*_written_out(CheckDocument.model_validate(check.body)), rule]}
    definitions.put(store, vault, "check", parse_document(CheckDocument, body), now=now, revision=revision)


def _measures(document: CheckDocument) -> list[str]:
    """Names of the aggregates worth a bound: those of the check's use first, if it has one."""
    cuts = {*document.cutoffs, document.k}
    is_deep = _DEEP in cuts and document.fetch_k >= _DEEP
    deep = [Measure("R", document.k), *([Measure("NDCG", _DEEP)] if is_deep else [])]
    first = () if document.use is Use.GENERAL else document.guide.measures
    return list(dict.fromkeys([*first, COVERAGE, "health_score", *(mean_name(measure) for measure in deep)]))


def _suggestion(
    connection: Connection, source: series.Source, document: CheckDocument, measure: str
) -> SuggestedRule | None:
    usual = normal_range.usual(connection, source, measure)
    below = None if usual is None else suggested_bound(usual.low)
    if usual is None or below is None:
        return None
    rule: SuggestedRuleBody = {"kind": RuleKind.THRESHOLD, "measure": measure, "critical": {"below": below}}
    lines = [RuleDocument.model_validate(one) for one in [*_default(document), rule]]
    return SuggestedRule(
        measure=measure,
        below=below,
        usual_low=usual.low,
        runs=usual.runs,
        rule=rule,
        yaml=rules_yaml(lines),
        watched_by=_watching(document.rules, measure),
    )


def _watching(rules: Sequence[RuleDocument], measure: str) -> str | None:
    """Key of the rule, disabled or not, that is about a bound of a measure of the whole check; None = there is none."""
    key = default_rule_key(RuleKind.THRESHOLD, measure)
    mine = (
        str(rule.key)
        for rule in rules
        if rule.key == key or (rule.kind is RuleKind.THRESHOLD and rule.measure == measure and rule.category is None)
    )
    return next(mine, None)


def _default(document: CheckDocument) -> list[dict[str, Any]]:
    """Default that a first rule of one's own would replace."""
    is_default = is_silent_about_quality([rule.to_domain() for rule in document.rules])
    return [{"kind": str(RuleKind.REGRESSION)}] if is_default else []


def _written_out(document: CheckDocument) -> list[dict[str, Any]]:
    return [*_default(document), *(rule.model_dump(mode="json", by_alias=True) for rule in document.rules)]
