"""The committed dashboards, read as Grafana reads them: their queries, their variables, and how those are filled in."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"
FOLDER = GRAFANA / "provisioning" / "dashboards" / "coalmine"
VARIABLE = re.compile(r"\$\{(\w+)(?:\.[\w.]+)?(?::\w+)?\}|\$([A-Za-z_]\w*)")
"""`$name`, `${name}`, `${name:format}` and `${name.field}`; `$1` is none."""
MACROS = {"__interval", "__rate_interval", "__range"}
Shape = Any
"""JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One expression of a board, and what it is for."""

    board: str
    panel: int
    """0 for annotations."""
    title: str
    ref: str
    expr: str
    legend: str
    instant: bool

    @property
    def name(self) -> str:
        """Name it in messages and lists of exceptions."""
        return f"{self.board}/{self.panel}/{self.ref}"


def boards() -> dict[str, Shape]:
    """Read the committed boards by file stem."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))}


def panels(board: Shape) -> list[Shape]:
    """List the panels that show something, those of folded rows among them."""
    return [panel for panel in unfolded(board) if panel["type"] != "row"]


def unfolded(board: Shape) -> list[Shape]:
    """List rows and panels, those of folded rows among them."""
    return [panel for screen in screens(board) for panel in screen]


def screens(board: Shape) -> list[list[Shape]]:
    """List what is laid out together: the board with its rows folded, then what each folded row holds."""
    return [board["panels"], *(row["panels"] for row in board["panels"] if row.get("panels"))]


def variables(board: Shape) -> list[Shape]:
    """List the variables in the order in which they are filled in."""
    found: list[Shape] = board["templating"]["list"]
    return found


def links(board: Shape) -> list[str]:
    """List where the links of a board and of its panels lead, but for those to all boards."""
    found = [link["url"] for link in board["links"] if link["type"] == "link"]
    for panel in panels(board):
        found += [link["url"] for link in panel["fieldConfig"]["defaults"].get("links", [])]
        found += [
            link["url"]
            for override in panel["fieldConfig"]["overrides"]
            for one in override["properties"]
            if one["id"] == "links"
            for link in one["value"]
        ]
    return found


def queries(board: Shape) -> Iterator[Query]:
    """Give every expression of panels and annotations."""
    uid = board.get("uid", "")
    for panel in panels(board):
        for target in panel["targets"]:
            yield Query(
                board=uid,
                panel=panel["id"],
                title=panel["title"],
                ref=target["refId"],
                expr=target["expr"],
                legend=target.get("legendFormat", ""),
                instant=target["instant"],
            )
    for place, annotation in enumerate(board["annotations"]["list"]):
        legend = annotation["titleFormat"] + annotation["textFormat"]
        yield Query(
            board=uid,
            panel=0,
            title=annotation["name"],
            ref=str(place),
            expr=annotation["target"]["expr"],
            legend=legend,
            instant=False,
        )


def filled(text: str, values: Mapping[str, str]) -> str:
    """Fill variables in; unknown ones stay."""
    return VARIABLE.sub(lambda found: values.get(found[1] or found[2], found[0]), text)


def stand_ins(board: Shape) -> dict[str, str]:
    """Give values with which every expression can be parsed."""
    durations = {"__interval": "15s", "__rate_interval": "1m", "__range": "1h"}
    return durations | {variable["name"]: "x" for variable in variables(board)}


def parsed(expr: str, board: Shape) -> promql_parser.Expr:
    """Parse an expression. Raises ValueError where Prometheus would refuse it."""
    expression: promql_parser.Expr = promql_parser.parse(filled(expr, stand_ins(board)))
    return expression


def selectors(expression: promql_parser.Expr) -> list[promql_parser.VectorSelector]:
    """List what an expression selects."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        elif isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)

    promql_parser.walk(expression, visit)
    return found


def metrics(board: Shape) -> set[str]:
    """Name all that the expressions and variables of a board select."""
    found = {one.name or "" for query in queries(board) for one in selectors(parsed(query.expr, board))}
    for variable in variables(board):
        if variable["type"] == "query":
            found |= {one.name or "" for one in selectors(parsed(label_values(variable["query"])[0], board))}
    return found


def label_values(query: str) -> tuple[str, str]:
    """Split the query of a variable into selector and label."""
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert found, query
    return found[1], found[2]


def chosen(board: Shape, source: str, values_of: Callable[[str, str], list[str]]) -> dict[str, str]:
    """Fill in the variables of a board in order as Grafana does when it is opened.

    `values_of` gives the values of a label by selector and label. All is the variable's own pattern; what is preferred
    is kept where it exists, else the first value is taken, or nothing where there is none.
    """
    values: dict[str, str] = {}
    for variable in variables(board):
        name, kind = variable["name"], variable["type"]
        if kind == "datasource":
            values[name] = source
        elif kind == "constant":
            values[name] = variable["query"]
        else:
            selector, label = label_values(filled(variable["query"], values))
            values[name] = _current(variable, values_of(selector, label))
    return values


def _current(variable: Shape, there: list[str]) -> str:
    wanted = variable.get("current", {}).get("value", [])
    wanted = [wanted] if isinstance(wanted, str) else wanted
    if wanted == ["$__all"]:
        return str(variable["allValue"])
    kept = [value for value in wanted if value in there] or there[:1]
    return f"({'|'.join(kept)})" if variable["multi"] else (kept or [""])[0]
