"""A check as a form has it, and back: the rules most people want as fields, all others as YAML beside them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.domain.errors import Problem
from app.domain.model import RuleKind
from app.formats.rule_documents import RuleDocument
from app.formats.rule_yaml import read_rules, rules_yaml
from app.web.forms import Typed, lines, number

COVERAGE, LATENCY, DETECTOR = "coverage", "latency", "regression"
DEFAULTS: Mapping[str, str] = {
    "schedule": "every",
    "schedule.every": "5m",
    "k": "5",
    "enabled": "yes",
    "remind": "1d",
    "rule.coverage": "yes",
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
"""What the form of a new check begins with: two bad runs of three open, as a single bad run may be chance."""
LABELS: Mapping[str, str] = {
    "slug": "Name",
    "suite": "Suite",
    "retriever": "Retriever",
    "k": "Top",
    "schedule": "Schedule",
    "schedule.every": "Interval",
    "schedule.cron": "Cron expression",
    "schedule.timezone": "Its time zone",
    "rule.regression": "The detector says that answers got worse",
    "rule.coverage": "Coverage is too low",
    "rule.coverage.warning": "Coverage is too low, Warning below",
    "rule.coverage.critical": "Coverage is too low, Critical below",
    "rule.coverage.open": "Coverage is too low, Bad runs",
    "rule.coverage.close": "Coverage is too low, Good runs to close",
    "rule.latency": "Answers take too long",
    "rule.latency.warning": "Answers take too long, Warning above",
    "rule.latency.critical": "Answers take too long, Critical above",
    "rule.latency.open": "Answers take too long, Bad runs",
    "rule.latency.close": "Answers take too long, Good runs to close",
    "rules": "Rules as YAML",
    "hooks": "Who hears of it",
    "remind": "Remind after",
    "fetch_k": "Hits to ask for",
    "cutoffs": "Cutoffs of the measures",
}
"""What people see the fields called."""
_LONGEST_SLUG = 64
_PLAIN = {
    COVERAGE: {"kind", "measure", "warning", "critical", "open", "close"},
    LATENCY: {"kind", "percentile", "warning", "critical", "open", "close"},
    DETECTOR: {"kind"},
}
_KEYS = {COVERAGE: "threshold-coverage", LATENCY: "latency-p95", DETECTOR: "regression"}
_RULE = re.compile(r"^rules\[([0-9]{1,9})\](.*?)(\.below|\.above)?$")
_SIDE = {COVERAGE: "below", LATENCY: "above"}


def texts_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Fill the fields of a form from a check's body."""
    schedule = body["schedule"]
    cron = schedule.get("cron") is not None
    texts = {
        **{name: text for name, text in DEFAULTS.items() if name.count(".") > 1},
        "slug": str(body["slug"]),
        "suite": str(body["suite"]),
        "retriever": str(body["retriever"]),
        "schedule": "cron" if cron else "every",
        "schedule.every": str(schedule.get("every") or ""),
        "schedule.cron": str(schedule.get("cron") or ""),
        "schedule.timezone": str(schedule.get("timezone") or ""),
        "k": str(body["k"]),
        "fetch_k": "" if body["fetch_k"] == max(body["k"], 10) else str(body["fetch_k"]),
        "cutoffs": ", ".join(map(str, body["cutoffs"])),
        "remind": str(body["remind"] or ""),
        "enabled": "yes" if body["enabled"] else "",
    }
    others = []
    for rule in [RuleDocument.model_validate(one) for one in body["rules"]]:
        name = _simple(rule)
        if name is None:
            others.append(rule)
            continue
        texts[f"rule.{name}"] = "yes"
        texts |= _bounds(name, rule)
    return {**texts, "rules": rules_yaml(others)}


def body_of(typed: Typed, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Make the body of a check of what was typed. Raises InvalidInputError for rules that are no YAML."""
    suite, retriever = typed.stripped("suite"), typed.stripped("retriever")
    slug = str(stored["slug"]) if stored else typed.stripped("slug")
    body: dict[str, Any] = dict(stored or {})
    body |= {
        "slug": slug or f"{suite}-{retriever}"[:_LONGEST_SLUG].strip("-"),
        "suite": suite,
        "retriever": retriever,
        "schedule": _schedule(typed),
        "k": number(typed.get("k")),
        "fetch_k": number(typed.get("fetch_k")) if typed.stripped("fetch_k") else None,
        "hooks": list(typed.all("hooks")),
        "remind": typed.stripped("remind") or None,
        "enabled": bool(typed.get("enabled")),
        "rules": [*_rules(typed), *read_rules(typed.get("rules"))],
    }
    if typed.stripped("cutoffs"):
        body["cutoffs"] = [number(one) for one in lines(typed.get("cutoffs"))]
    return body


def placed(typed: Typed, problems: Iterable[Problem]) -> list[Problem]:
    """Put what is wrong with rules where the form has them: those with fields of their own, and the rest in YAML.

    `rules[0]` is, for example, the one on coverage, and `rules[2]` the first of the YAML.
    """
    chosen = [name for name in (COVERAGE, LATENCY, DETECTOR) if typed.get(f"rule.{name}")]
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


def _schedule(typed: Typed) -> dict[str, Any]:
    if typed.get("schedule") == "cron":
        zone = typed.stripped("schedule.timezone")
        return {"cron": typed.stripped("schedule.cron"), **({"timezone": zone} if zone else {})}
    return {"every": typed.stripped("schedule.every")}


def _rules(typed: Typed) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if typed.get("rule.coverage"):
        found.append({"kind": str(RuleKind.THRESHOLD), "measure": COVERAGE, **_written(typed, COVERAGE)})
    if typed.get("rule.latency"):
        found.append({"kind": str(RuleKind.LATENCY), **_written(typed, LATENCY)})
    if typed.get("rule.regression"):
        found.append({"kind": str(RuleKind.REGRESSION)})
    return found


def _written(typed: Typed, name: str) -> dict[str, Any]:
    at = f"rule.{name}"
    rule: dict[str, Any] = {
        bound: {_SIDE[name]: number(typed.get(f"{at}.{bound}"))}
        for bound in ("warning", "critical")
        if typed.stripped(f"{at}.{bound}")
    }
    opens = {part: number(typed.get(f"{at}.{part}")) for part in ("bad", "of") if typed.stripped(f"{at}.{part}")}
    close = {"close": number(typed.get(f"{at}.close"))} if typed.stripped(f"{at}.close") else {}
    return {**rule, **({"open": opens} if opens else {}), **close}


def _simple(rule: RuleDocument) -> str | None:
    """Name the fields that hold a rule in full; None where there are none."""
    name = next((name for name, key in _KEYS.items() if rule.key == key), None)
    said = rule.model_dump(exclude_defaults=True).keys() - {"key"}
    if name is None or not said <= _PLAIN[name] or not rule.enabled:
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
