"""Converts a check to the fields of its form and back: common rules are fields, all others YAML.

`app.base.web.document_forms` makes the fields of the document. Those for rules and for the kind of schedule are defined
here, since the document has a list of rules of any kind and no field for the kind of schedule.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from app.alerts.documents.rule_documents import RuleDocument
from app.alerts.documents.rule_yaml import read_rules, rules_yaml
from app.alerts.domain.rules import ALWAYS, is_silent_about_quality
from app.base.errors import InvalidInputError, Problem
from app.base.values import RuleKind
from app.base.web.document_forms import FormField, document_body, document_texts, field_labels, form_fields
from app.base.web.forms import Form, parse_list, parse_number
from app.catalog.documents.documents import CheckDocument

COVERAGE, LATENCY, DETECTOR = "coverage", "latency", "regression"
FIELDS: Final[Mapping[str, FormField]] = form_fields(CheckDocument)
_OF_RULES: Final[Mapping[str, str]] = {
    "schedule": "every",
    "schedule.every": "5m",
    "rule.coverage.warning": "0.95",
    "rule.coverage.critical": "0.9",
    "rule.coverage.bad": "2",
    "rule.coverage.of": "3",
    "rule.coverage.close": "2",
    "rule.regression": "yes",
    "rule.latency.warning": "1",
    "rule.latency.critical": "",
    "now": "yes",
}
DEFAULTS: Final[Mapping[str, str]] = {
    **document_texts(
        FIELDS, {name: CheckDocument.model_fields[name].default for name in ("k", "use", "remind", "enabled")}
    ).texts,
    **_OF_RULES,
}
"""Values of a new check's form: two bad runs of three open an alert, as a single bad run may be chance."""
LABELS: Final[Mapping[str, str]] = {
    **field_labels(FIELDS),
    "schedule": str(CheckDocument.model_fields["schedule"].title),
    "rule.regression": "Regression detector",
    "rule.coverage": "Coverage threshold",
    "rule.coverage.warning": "Coverage threshold, Warning below",
    "rule.coverage.critical": "Coverage threshold, Critical below",
    "rule.coverage.open": "Coverage threshold, Bad runs",
    "rule.coverage.close": "Coverage threshold, Good runs to close",
    "rule.latency": "Latency threshold",
    "rule.latency.warning": "Latency threshold, Warning above",
    "rule.latency.critical": "Latency threshold, Critical above",
    "rule.latency.open": "Latency threshold, Bad runs",
    "rule.latency.close": "Latency threshold, Good runs to close",
    "rules": "Rules as YAML",
}
"""Labels of the fields."""
_SHOWN: Final = frozenset({"schedule", "rules", "report", *FIELDS})
_LONGEST_SLUG = 64
_PLAIN = {
    COVERAGE: {"kind", "measure", "warning", "critical", "open", "close"},
    LATENCY: {"kind", "percentile", "warning", "critical", "open", "close"},
    DETECTOR: {"kind"},
}
_KEYS = {COVERAGE: "threshold-coverage", LATENCY: "latency-p95", DETECTOR: "regression"}
_RULE = re.compile(r"^rules\[([0-9]{1,9})\](.*?)(\.below|\.above)?$")
_NOT_ABOUT_QUALITY = {*ALWAYS, RuleKind.GUARD}
_NO_DETECTOR = {"kind": RuleKind.REGRESSION, "enabled": False}
RULES: Final = frozenset(f"rule.{name}" for name in _KEYS)
"""Groups of fields that hold a rule each."""
_SIDE = {COVERAGE: "below", LATENCY: "above"}


def form_of(body: Mapping[str, Any]) -> Form:
    """Return the form of a check's body."""
    fetch_k = None if body["fetch_k"] == max(body["k"], 10) else body["fetch_k"]
    typed = document_texts(FIELDS, {**body, "fetch_k": fetch_k})
    texts = {
        **{name: text for name, text in _OF_RULES.items() if name.count(".") > 1},
        **typed.texts,
        "schedule": "every" if body["schedule"].get("cron") is None else "cron",
    }
    others = []
    rules = [RuleDocument.model_validate(one) for one in body["rules"]]
    if is_silent_about_quality([rule.to_domain() for rule in rules]):
        texts[f"rule.{DETECTOR}"] = "yes"
    # An unticked detector is stored as a disabled rule where no other rule is about quality.
    alone = is_silent_about_quality([rule.to_domain() for rule in rules if rule.kind is not RuleKind.REGRESSION])
    for rule in rules:
        name = _field_group(rule)
        if name is not None:
            texts[f"rule.{name}"] = "yes"
            texts |= _bounds(name, rule)
        elif rule.model_dump(exclude_defaults=True, exclude={"key"}) != _NO_DETECTOR or not alone:
            others.append(rule)
    return replace(typed, texts={**texts, "rules": rules_yaml(others)})


def body_of(typed: Form, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the body of a check from its form. Raises InvalidInputError for invalid YAML of rules."""
    unshown = {name: value for name, value in (stored or {}).items() if name not in _SHOWN}
    body = {**unshown, **document_body({path: one for path, one in FIELDS.items() if "." not in path}, typed)}
    default_slug = f"{body['suite']}-{body['retriever']}"[:_LONGEST_SLUG].strip("-")
    return {
        **body,
        "slug": str(stored["slug"]) if stored else body["slug"] or default_slug,
        "schedule": _schedule(typed),
        "report": _report(typed),
        "rules": _rules(typed, read_rules(typed.get("rules")), stored),
    }


def place_problems(typed: Form, stored: Mapping[str, Any] | None, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems with those of rules moved to the form's fields: a rule's own, or the YAML.

    `rules[0]` is, for example, the one on coverage, and `rules[2]` the first of the YAML.
    """
    try:
        others = read_rules(typed.get("rules"))
    except InvalidInputError:  # problems of the YAML itself are about no rule
        return list(problems)
    chosen = _chosen(typed, others, stored)
    return [
        problem
        if problem.path is None
        else replace(problem, path=_RULE.sub(lambda rule: _place(rule, chosen), problem.path))
        for problem in problems
    ]


def _place(rule: re.Match[str], chosen: Sequence[str]) -> str:
    place, inside, side = int(rule[1]), rule[2], rule[3] or ""
    if place < len(chosen):
        return f"rule.{chosen[place]}{inside}"
    return f"rules[{place - len(chosen)}]{inside}{side}"


def _schedule(typed: Form) -> dict[str, Any]:
    if typed.get("schedule") == "cron":
        zone = typed.stripped("schedule.timezone")
        return {"cron": typed.stripped("schedule.cron"), **({"timezone": zone} if zone else {})}
    return {"every": typed.stripped("schedule.every")}


def _report(typed: Form) -> dict[str, Any] | None:
    """Return the schedule of reports; None without a cron expression."""
    cron, zone = typed.stripped("report.cron"), typed.stripped("report.timezone")
    if not cron:
        return None
    return {"cron": cron, **({"timezone": zone} if zone else {}), "hooks": parse_list(typed.get("report.hooks"))}


def _chosen(typed: Form, others: Sequence[Any], stored: Mapping[str, Any] | None) -> list[str]:
    """Names of the ticked fields that write a rule, in the order of these rules.

    The detector is the default where nothing else is watched: its tick writes none unless it was written out before.
    """
    chosen = [name for name in (COVERAGE, LATENCY, DETECTOR) if typed.get(f"rule.{name}")]
    is_written_out = stored is not None and any(rule["kind"] == RuleKind.REGRESSION for rule in stored.get("rules", ()))
    is_default = chosen == [DETECTOR] and _are_silent_about_quality(others) and not is_written_out
    return [] if is_default else chosen


def _rules(typed: Form, others: Sequence[Any], stored: Mapping[str, Any] | None) -> list[Any]:
    """Rules of a check: those of the fields, then `others`.

    Without a rule on what is found a check has the detector by default, so an empty tick has to be written down.
    """
    written: Mapping[str, dict[str, Any]] = {
        COVERAGE: {"kind": str(RuleKind.THRESHOLD), "measure": COVERAGE, **_written(typed, COVERAGE)},
        LATENCY: {"kind": str(RuleKind.LATENCY), **_written(typed, LATENCY)},
        DETECTOR: {"kind": str(RuleKind.REGRESSION)},
    }
    chosen = _chosen(typed, others, stored)
    if not chosen and not typed.get(f"rule.{DETECTOR}") and _are_silent_about_quality(others):
        return [*others, {"kind": str(RuleKind.REGRESSION), "enabled": False}]
    return [*(written[name] for name in chosen), *others]


def _are_silent_about_quality(rules: Sequence[Any]) -> bool:
    """Whether rules, which need not be valid, leave quality to the default rule."""
    return all(isinstance(one, Mapping) and one.get("kind") in _NOT_ABOUT_QUALITY for one in rules)


def _written(typed: Form, name: str) -> dict[str, Any]:
    at = f"rule.{name}"
    rule: dict[str, Any] = {
        bound: {_SIDE[name]: parse_number(typed.get(f"{at}.{bound}"))}
        for bound in ("warning", "critical")
        if typed.stripped(f"{at}.{bound}")
    }
    opens = {part: parse_number(typed.get(f"{at}.{part}")) for part in ("bad", "of") if typed.stripped(f"{at}.{part}")}
    close = {"close": parse_number(typed.get(f"{at}.close"))} if typed.stripped(f"{at}.close") else {}
    return {**rule, **({"open": opens} if opens else {}), **close}


def _field_group(rule: RuleDocument) -> str | None:
    """Return the group of fields that represents a rule completely; None where there is none."""
    name = next((name for name, key in _KEYS.items() if rule.key == key), None)
    fields_set = rule.model_dump(exclude_defaults=True).keys() - {"key"}
    if name is None or not fields_set <= _PLAIN[name] or not rule.enabled:
        return None
    return name if name != COVERAGE or not _above(rule) else None


def _above(rule: RuleDocument) -> bool:
    return any(bound is not None and bound.below is None for bound in (rule.warning, rule.critical))


def _bounds(name: str, rule: RuleDocument) -> dict[str, str]:
    if name == DETECTOR:
        return {}
    bounds = {"warning": rule.warning, "critical": rule.critical}
    values = {bound: "" if one is None else getattr(one, _SIDE[name]) for bound, one in bounds.items()}
    texts = {f"rule.{name}.{bound}": value if value == "" else f"{value:g}" for bound, value in values.items()}
    counts: Sequence[tuple[str, int]] = (("bad", rule.open.bad), ("of", rule.open.of), ("close", rule.close))
    return {**texts, **{f"rule.{name}.{part}": str(count) for part, count in counts}}
