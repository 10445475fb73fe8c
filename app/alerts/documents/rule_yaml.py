"""Rules as YAML text, as under the `rules` of a check, for the form field of rules without widgets."""

from collections.abc import Sequence
from typing import Any

import yaml

from app.alerts.documents.rule_documents import RuleDocument
from app.base.documents.yaml_source import escape_dollars, read_yaml
from app.base.errors import InvalidInputError, Problem


def rules_yaml(rules: Sequence[RuleDocument]) -> str:
    """Rules as YAML without their defaults; empty where there are none."""
    if not rules:
        return ""
    lean = [_escaped(rule.without_defaults()) for rule in rules]
    return str(yaml.safe_dump(lean, sort_keys=False, allow_unicode=True, width=110))


def read_rules(text: str) -> list[Any]:
    """Read rules, not yet validated; empty for an empty text. Raises InvalidInputError with the line."""
    located, errors = read_yaml("rules", text, {})
    problems = [Problem(path="rules", message=f"line {problem.line}: {problem.message}") for problem in errors]
    data = [document.data for document in located if document.data is not None]
    if problems:
        raise InvalidInputError(problems)
    if len(data) > 1 or not all(isinstance(one, list) for one in data):
        raise InvalidInputError([Problem(path="rules", message="must be a list: each rule begins with '- '")])
    return list(data[0]) if data else []


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return escape_dollars(value)
    if isinstance(value, dict):
        return {name: _escaped(inner) for name, inner in value.items()}
    return value
