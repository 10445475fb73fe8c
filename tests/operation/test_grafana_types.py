"""The committed dashboards held against the TypeScript types that Grafana itself publishes (`@grafana/schema`)."""

import copy
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.systems

ROOT = Path(__file__).parents[2]
NPM = ROOT / "tests" / "npm"
BOARDS = sorted((ROOT / "deploy/grafana/provisioning/dashboards/coalmine").glob("*.json"))
Shape = Any
"""JSON."""


def _first(board: Shape, kind: str) -> Shape:
    return next(panel for panel in board["panels"] if panel["type"] == kind)


def _set(place: Shape, key: str, value: Any) -> None:
    place[key] = value


BROKEN: dict[str, Callable[[Shape], object]] = {
    "title_is_a_number": lambda board: _set(board, "title", 1),
    "no_uid": lambda board: board.pop("uid"),
    "field_nobody_knows": lambda board: _set(board, "tittle", "Overview"),
    "panel_of_no_plugin": lambda board: _set(_first(board, "stat"), "type", "statistic"),
    "panel_without_description": lambda board: _first(board, "stat").pop("description"),
    "panel_without_unit": lambda board: _first(board, "stat")["fieldConfig"]["defaults"].pop("unit"),
    "option_of_another_plugin": lambda board: _set(_first(board, "stat")["options"], "showHeader", True),
    "value_no_enumeration_has": lambda board: _set(_first(board, "stat")["options"], "textMode", "loud"),
    "draw_style_nobody_knows": lambda board: _set(
        _first(board, "timeseries")["fieldConfig"]["defaults"]["custom"], "drawStyle", "stairs"
    ),
    "query_without_expression": lambda board: _first(board, "stat")["targets"][0].pop("expr"),
    "query_of_no_kind": lambda board: _set(_first(board, "stat")["targets"][0], "instant", False),
    "data_source_that_is_fixed": lambda board: _set(_first(board, "stat")["datasource"], "uid", "abc"),
    "grid_position_as_text": lambda board: _set(_first(board, "stat")["gridPos"], "w", "12"),
    "threshold_without_colour": lambda board: _first(board, "stat")["fieldConfig"]["defaults"]["thresholds"]["steps"][
        0
    ].pop("color"),
    "override_nobody_knows": lambda board: _set(
        _first(board, "table")["fieldConfig"]["overrides"][0]["properties"][0], "id", "colour"
    ),
    "variable_of_no_type": lambda board: _set(board["templating"]["list"][0], "type", "source"),
    "refresh_nobody_knows": lambda board: _set(board["templating"]["list"][1], "refresh", 7),
    "annotation_without_colour": lambda board: board["annotations"]["list"][0].pop("iconColor"),
}


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Compile every board, and every broken one, in one go; gives what the compiler says by board."""
    compiler, node = NPM / "node_modules/typescript/bin/tsc", shutil.which("node")
    if node is None or not compiler.exists():
        pytest.skip("needs node and the packages of tests/npm, which make test installs where it may")
    folder = tmp_path_factory.mktemp("boards")
    for file in BOARDS:
        _write(folder, file.stem, json.loads(file.read_text(encoding="utf-8")))
    whole = json.loads(BOARDS[-1].read_text(encoding="utf-8"))
    whole["panels"] = [_first(whole, kind) for kind in ("stat", "table", "timeseries")]  # enough to break
    _write(folder, "unbroken", whole)
    for name, break_ in BROKEN.items():
        board = copy.deepcopy(whole)
        break_(board)
        _write(folder, name, board)
    options = {
        "strict": True,
        "noEmit": True,
        "skipLibCheck": True,
        "module": "esnext",
        "moduleResolution": "bundler",
        "target": "es2022",
        "types": [],
    }
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["*.ts"]}))
    done = subprocess.run(  # noqa: S603 - the compiler of our own lock
        [node, compiler, "--project", folder, "--pretty", "false"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {file.stem: "" for file in folder.glob("*.ts")}
    board = ""
    for line in done.stdout.splitlines():
        if not line.startswith(" "):  # else it goes on explaining
            board = line.partition(".ts(")[0]
        assert board in found, done.stdout + done.stderr
        found[board] += f"{line}\n"
    return found


def _write(folder: Path, name: str, board: Shape) -> None:
    """Write a board as a constant of its type; of panels in folded rows that knows only what all kinds share."""
    rows = [{**panel, "panels": []} if panel.get("panels") else panel for panel in board["panels"]]
    board = {**board, "panels": [*rows, *(panel for row in board["panels"] for panel in row.get("panels", []))]}
    types = json.dumps(str(NPM / "boards"))
    text = json.dumps(board, indent=1)
    (folder / f"{name}.ts").write_text(f"import type {{ Board }} from {types};\nexport const board: Board = {text};\n")


@pytest.mark.parametrize("name", [*(file.stem for file in BOARDS), "unbroken"])
def test_a_board_is_of_the_types_grafana_publishes(complaints: dict[str, str], name: str) -> None:
    assert complaints[name] == ""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_board_is_not(complaints: dict[str, str], name: str) -> None:
    assert "error TS" in complaints[name]
