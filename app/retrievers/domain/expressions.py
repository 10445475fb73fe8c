"""Limits of the expressions of a response mapping: nesting, and how much larger a value may get than the response.

Works on JMESPath as its parser lays it out, nodes of `type`, `children` and `value`; the callers parse: documents,
which refuse by it, and whoever evaluates.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

MAX_GROWTH = 100
"""How many times larger than an answer a value made of it may be; beyond, an answer of some MB fills the memory."""
MAX_LEVELS = 50
"""How deep an expression may be nested: parsing and evaluating it recurse, wherever on the stack they begin."""
TOO_DEEP = f"is nested more than {MAX_LEVELS} levels deep"


def find_problem(text: str, node: Mapping[str, Any]) -> str | None:
    """Return why an expression, as text and parsed, may not be used; None = it may."""
    if text.count("(") > MAX_LEVELS or _is_deep(node):  # parentheses leave no node behind
        return TOO_DEEP
    if _growth(node) > MAX_GROWTH:
        return f"could make an answer more than {MAX_GROWTH} times larger than it is"
    return None


def _is_deep(root: Mapping[str, Any]) -> bool:
    """Whether it has too many levels, without recursion; every step of a chain such as `a.b.c` is one."""
    left: list[tuple[Any, int]] = [(root, 1)]
    literals: list[tuple[Any, int]] = []
    while left:
        node, level = left.pop()
        if level > MAX_LEVELS:
            return True
        if isinstance(node, dict):  # and no bound of a slice
            chained = node["type"] in _CHAINS
            left += [(child, level + 1 + chained * step) for step, child in enumerate(node["children"])]
            literals.append((node.get("value"), level))
    while literals:
        value, level = literals.pop()
        if level > MAX_LEVELS:
            return True
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        literals += [(one, level + 1) for one in inner]
    return False


def _growth(node: Mapping[str, Any]) -> float:
    """Bound of how many times larger than its input a value can get; infinite where nothing bounds it."""
    kind: str = node["type"]
    children: list[Any] = node.get("children", [])
    if kind == "literal":
        return _leaves(node["value"])
    if kind == "slice" or not children:
        return 1.0
    grown = [_growth(child) for child in children]
    if kind == "function_expression":
        applied: float = prod(one for one, child in zip(grown, children, strict=True) if child["type"] == "expref")
        multiplied = sum(one for one, child in zip(grown, children, strict=True) if child["type"] != "expref")
        return applied * max(multiplied, 1.0) * _FUNCTIONS.get(node["value"], 1.0) * _separator_growth(node)
    combine = _COMBINED.get(kind)
    return combine(grown) if combine else prod(grown)


def _separator_growth(node: Mapping[str, Any]) -> float:
    """Growth by `join`: a separator taken from the response could be as long as the response."""
    if node["value"] != "join":
        return 1.0
    separator = node["children"][0]
    literal = separator["type"] == "literal" and isinstance(separator["value"], str)
    return max(len(separator["value"]) / 2, 1.0) if literal else float("inf")


def _leaves(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if inner is None else max(1, sum(map(_leaves, inner)))


_CHAINS = ("subexpression", "index_expression")
_COMBINED: Mapping[str, Callable[[list[float]], float]] = {
    "comparator": max,
    "or_expression": max,
    "and_expression": max,
    "not_expression": max,
    "multi_select_list": sum,
    "multi_select_dict": sum,
    "filter_projection": lambda grown: grown[0] * max(grown[1:]),
}
_FUNCTIONS = {"to_string": 2.0}  # escapes what it quotes, and what was escaped before once more
