"""Write out the rule that checks without rules had, so that a new default does not change what they alert on.

Every version of a check is rewritten: the runs of each were judged by that rule. A check of a file has the new default
once the file is applied again, as the file says no more than that. The hash is that of this release, as frozen here.
"""

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_default_rules"
down_revision = "2026_11_22_run_probes"
branch_labels = None
depends_on = None

_OF_EVERY_CHECK = {"probe_errors", "no_data", "embedding"}
_OPEN = {"bad": 2, "of": 3}
_RULE_DEFAULTS = {
    "measure": None,
    "category": None,
    "canary": None,
    "percentile": None,
    "severity": "critical",
    "warning": None,
    "critical": None,
    "confidence": 0.95,
    "open": _OPEN,
    "close": 2,
    "margin": 0.0,
    "failed_share": None,
    "enabled": True,
}
_CHECK_DEFAULTS = {
    "k": 5,
    "cutoffs": [1, 3, 5, 10, 20],
    "hooks": [],
    "remind": "1d",
    "enabled": True,
    "canary_metrics": 0,
}
_IMPLIED = {
    "kind": "threshold",
    **_RULE_DEFAULTS,
    "measure": "coverage",
    "critical": {"below": 0.9, "above": None, "by": None},
    "key": "threshold-coverage",
}

_definitions = sa.table(
    "definitions", sa.column("id"), sa.column("kind"), sa.column("version_id"), sa.column("revision")
)
_versions = sa.table(
    "definition_versions", sa.column("id"), sa.column("definition_id"), sa.column("hash"), sa.column("body")
)


def upgrade() -> None:
    """Rewrite the versions; where one with the rule is there already, that one comes into force."""
    connection = op.get_bind()
    of_checks = (
        sa.select(_versions.c.id, _versions.c.definition_id, _versions.c.body)
        .join(_definitions, _definitions.c.id == _versions.c.definition_id)
        .where(_definitions.c.kind == "check")
        .order_by(_versions.c.id)
    )
    for version in connection.execute(of_checks).all():
        body = json.loads(version.body)
        if not _is_without(body.get("rules", [])):
            continue
        body["rules"] = [_IMPLIED, *body.get("rules", [])]
        hash_ = _content_hash(body)
        same = sa.and_(_versions.c.definition_id == version.definition_id, _versions.c.hash == hash_)
        other = connection.execute(sa.select(_versions.c.id).where(same)).scalar_one_or_none()
        if other is None:
            rewritten = {"body": json.dumps(body), "hash": hash_}
            connection.execute(sa.update(_versions).where(_versions.c.id == version.id).values(rewritten))
        connection.execute(
            sa.update(_definitions)
            .where(_definitions.c.version_id == version.id)
            .values(version_id=other or version.id, revision=_definitions.c.revision + 1)
        )


def _is_without(rules: list[dict[str, Any]]) -> bool:
    """Whether the rule was implied beside these, and no disabled one of its key took it away."""
    named = {rule.get("key") for rule in rules}
    return not {rule["kind"] for rule in rules} - _OF_EVERY_CHECK and _IMPLIED["key"] not in named


def _content_hash(body: dict[str, Any]) -> str:
    """Hash of what a check means, defaults left out."""
    lean = {
        name: value for name, value in body.items() if name not in _CHECK_DEFAULTS or value != _CHECK_DEFAULTS[name]
    }
    lean["schedule"] = _said(body["schedule"])
    lean["rules"] = [_lean_rule(rule) for rule in body["rules"]]
    if "hooks" in lean:
        lean["hooks"] = sorted(lean["hooks"])
    meaning = json.dumps(["CheckDocument", lean, []], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(meaning.encode()).hexdigest()


def _lean_rule(rule: dict[str, Any]) -> dict[str, Any]:
    lean = {name: value for name, value in rule.items() if name not in _RULE_DEFAULTS or value != _RULE_DEFAULTS[name]}
    for bound in ("warning", "critical"):
        if bound in lean:
            lean[bound] = _said(lean[bound])
    if "open" in lean:
        lean["open"] = {name: value for name, value in lean["open"].items() if value != _OPEN[name]}
    return lean


def _said(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
