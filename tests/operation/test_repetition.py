"""What the code says once: helpers whose second form once stood beside them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.alerts.domain.advice import CAUSE_ADVICE
from app.alerts.domain.summaries import CAUSE_WORDS
from app.base.values import Cause

APP = Path(__file__).parents[2] / "app"
LONGEST = 800
MOST_MODULES = 340


def test_lists_are_cut_into_blocks_by_one_function_of_the_store() -> None:
    rows = [(path, tree) for path, tree in _modules("range(") if {"store", "db", "jobs", "store.py"} & {*path.parts}]
    sliced = {str(path) for path, tree in rows for node in ast.walk(tree) if _cuts(node)}
    assert sliced == {"base/db/engine.py"}


def test_the_row_of_a_definition_is_locked_by_one_function_for_each_strength() -> None:
    locks = [
        (str(path), lock)
        for path, tree in _modules("with_for_update(")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.Assign) and "definitions.c.id" in (text := ast.unparse(node))
        for lock in re.findall(r"select\(definitions\.c\.id\).*with_for_update\((.*?)\)", text, re.DOTALL)
    ]
    assert sorted(locks) == [("catalog/store.py", ""), ("catalog/store.py", "key_share=True")]


def test_every_cause_has_its_words_in_one_table_and_its_advice_in_one() -> None:
    tables = {str(path) for path, tree in _modules("Cause.") for node in ast.walk(tree) if _is_keyed_by(node, "Cause.")}
    assert tables == {"alerts/domain/summaries.py", "alerts/domain/advice.py"}
    assert set(CAUSE_WORDS) == set(CAUSE_ADVICE) == set(Cause)


def test_no_module_is_longer_than_a_chapter() -> None:
    lines = {str(path.relative_to(APP)): path.read_text("utf-8").count("\n") for path in APP.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}
    assert len([name for name in lines if not name.endswith("__init__.py")]) <= MOST_MODULES


ONCE = {
    r":\.0%\}|:\.0f\} %": {"base/texts.py", "diagnosis/domain/quality.py"},
    r"verdict\.in_\(": {"records/store/run_rows.py"},
    r'"days", 86_400': {"base/texts.py"},
    r'isprintable\(\) else " " for sign in name': {"base/texts.py"},
    r"\[A-Za-z_\]\[A-Za-z0-9_\]\*\)\\s": {"retrievers/domain/retrievers.py"},
}
"""What stands in these modules and nowhere else: shares, runs whose verdict is known, units, short names, templates."""


@pytest.mark.parametrize("pattern", ONCE)
def test_what_several_modules_need_is_said_by_one(pattern: str) -> None:
    found = {str(path.relative_to(APP)) for path in APP.rglob("*.py") if re.search(pattern, path.read_text())}
    assert found == ONCE[pattern]


def _modules(text: str) -> Iterator[tuple[Path, ast.Module]]:
    """Parse the modules that hold a text."""
    for path in sorted(APP.rglob("*.py")):
        if text in (code := path.read_text()):
            yield path.relative_to(APP), ast.parse(code)


def _cuts(node: ast.AST) -> bool:
    """Whether a loop steps through a list by more than one."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "range"
        and len(node.args) == 3
        and not isinstance(node.args[2], ast.UnaryOp)
    )


def _is_keyed_by(node: ast.AST, prefix: str) -> bool:
    """Whether a dictionary has several members of an enum as keys, and words as values."""
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    words = [key for key, value in pairs if key is not None and isinstance(value, ast.Constant | ast.Call)]
    return sum(ast.unparse(key).startswith(prefix) for key in words) > 5
