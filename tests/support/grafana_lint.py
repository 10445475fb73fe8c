"""Rules that every dashboard keeps, each a function from a board to complaints.

No Grafana can run where the tests run, and its own linter comes as a binary that no registry here has. These are the
rules of that linter which apply, and what this project asks of its boards beyond them.
"""

import re
from collections.abc import Callable, Iterator
from itertools import chain, combinations

import promql_parser

from tests.support.grafana_boards import (
    MACROS,
    VARIABLE,
    Shape,
    links,
    panels,
    parsed,
    queries,
    screens,
    selectors,
    unfolded,
    variables,
)

Rule = Callable[[Shape], Iterator[str]]
PROCESS_GAUGES = re.compile(
    r"coalmine_(store_up|worker_up|build_info|config_\w+|scheduler_lag_seconds|self_issue)|up|scrape_\w+"
)
"""Gauges that each replica has of its own; whatever else is no counter is state, the same on all of them."""
COUNTERS = re.compile(r".*_(total|bucket|sum|count)")
OF_A_REPLICA = {"instance", "pod", "container", "node", "replica"}
GREENS = {"green", "dark-green", "semi-dark-green", "light-green", "super-light-green"}
UNITS = {"percentunit", "s", "short", "string", "none", "dateTimeFromNow"}


def every_query_goes_to_the_chosen_data_source(board: Shape) -> Iterator[str]:
    """Nothing names a data source that only exists here."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    asking = [("variable", one["name"], one.get("datasource")) for one in variables(board) if one["type"] == "query"]
    asking += [("annotation", one["name"], one.get("datasource")) for one in board["annotations"]["list"]]
    asking += [("annotation", one["name"], one["target"].get("datasource")) for one in board["annotations"]["list"]]
    for panel in panels(board):
        asking += [("panel", panel["title"], panel.get("datasource"))]
        asking += [("target", panel["title"], target.get("datasource")) for target in panel["targets"]]
    yield from (f"{kind} {name}: data source {given}" for kind, name, given in asking if given != source)
    if ("datasource", "prometheus") not in {(one["type"], one["query"]) for one in variables(board)}:
        yield "no variable for the data source"


def everything_has_a_title(board: Shape) -> Iterator[str]:
    """No panel and no row is without a title, and no two in a board share one unless they show it differently."""
    for panel in unfolded(board):
        if not panel.get("title", "").strip():
            yield f"panel {panel.get('id')} has no title"
    shown = [(panel.get("title"), panel["type"]) for panel in unfolded(board)]
    yield from (f"two panels are called {title}" for title, kind in set(shown) if shown.count((title, kind)) > 1)


def everything_is_described(board: Shape) -> Iterator[str]:
    """Every panel says in a sentence what it shows, and so does the board."""
    described = [(panel["title"], panel.get("description", "")) for panel in panels(board)]
    for title, text in [*described, (board.get("title"), board.get("description", ""))]:
        if len(text) < 15 or not text.endswith("."):
            yield f"{title}: described by {text!r}"


def everything_has_a_unit(board: Shape) -> Iterator[str]:
    """Every panel has a unit Grafana knows, and so has every column that says one."""
    for panel in panels(board):
        given = [panel["fieldConfig"]["defaults"].get("unit")]
        given += [
            one["value"]
            for override in panel["fieldConfig"]["overrides"]
            for one in override["properties"]
            if one["id"] == "unit"
        ]
        yield from (f"{panel['title']}: unit {unit}" for unit in given if unit not in UNITS)


def ids_are_unique(board: Shape) -> Iterator[str]:
    """Links to single panels need their ids; Grafana would make some up."""
    ids = [panel.get("id") for panel in unfolded(board)]
    yield from (f"panel id {one}" for one in set(ids) if not isinstance(one, int) or one <= 0 or ids.count(one) > 1)


def panels_do_not_overlap(board: Shape) -> Iterator[str]:
    """Panels lie side by side on a grid 24 wide."""
    for panel in unfolded(board):
        at = panel["gridPos"]
        if at["x"] < 0 or at["w"] <= 0 or at["h"] <= 0 or at["x"] + at["w"] > 24:
            yield f"panel {panel['id']} lies outside: {at}"
    placed = [[(panel["id"], panel["gridPos"]) for panel in screen] for screen in screens(board)]
    for (id_, one), (other_id, other) in chain.from_iterable(combinations(screen, 2) for screen in placed):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        if not beside and not above:
            yield f"panels {id_} and {other_id} overlap"


def rates_fit_the_step(board: Shape) -> Iterator[str]:
    """Rates are taken over `$__rate_interval`; totals of all the time shown, over `$__range`."""
    for query in queries(board):
        for function, window in re.findall(r"\b(rate|irate|increase|delta)\s*\([^\[\]]*\[([^\]]*)\]", query.expr):
            allowed = {"$__rate_interval", "$__range"} if query.instant else {"$__rate_interval"}
            if window not in allowed:
                yield f"{query.name}: {function} over {window}"


def the_uid_is_stable(board: Shape) -> Iterator[str]:
    """Links and bookmarks live as long as the uid; an id is the server's to give."""
    if not re.fullmatch(r"coalmine-[a-z]+", board.get("uid", "")):
        yield f"uid {board.get('uid')}"
    if board.get("id") is not None:
        yield f"id {board['id']}"
    if "coalmine" not in board["tags"]:
        yield "no tag, so no other board links here"


def replicas_never_double(board: Shape) -> Iterator[str]:
    """State is taken once with `max by`, counters are added with `sum by`, and neither is told apart by replica."""
    for query in queries(board):
        for name, operation, labels in _aggregated(parsed(query.expr, board)):
            if COUNTERS.fullmatch(name):
                right = operation == "sum" and not labels & OF_A_REPLICA
            elif PROCESS_GAUGES.fullmatch(name):
                right = operation is not None
            else:
                right = operation in {"max", "min", "group"} and not labels & OF_A_REPLICA
            if not right:
                yield f"{query.name}: {name} under {operation} by {sorted(labels)}"


def only_variables_that_exist_are_used(board: Shape) -> Iterator[str]:
    """Every variable that is used is defined before, and every one that is defined is used."""
    known = set(MACROS) | {"__url_time_range", "__field", "__data", "__value"}
    used: set[str] = set()
    for variable in variables(board):
        mine = _used(variable["query"])
        yield from (f"variable {variable['name']} uses {name} before it is there" for name in mine - known)
        used |= mine
        known.add(variable["name"])
    rest = {name: value for name, value in board.items() if name != "templating"}
    in_panels = _used(str(rest))
    yield from (f"unknown variable {name}" for name in in_panels - known)
    defined = {variable["name"] for variable in variables(board)}
    yield from (f"variable {name} is never used" for name in defined - used - in_panels - {"coalmine_url"})


def legends_name_no_replica(board: Shape) -> Iterator[str]:
    """Several lines are told apart by labels of what they measure; by replica only what a replica has of its own."""
    for query in queries(board):
        names = {one.name or "" for one in selectors(parsed(query.expr, board))}
        by_replica = OF_A_REPLICA & set(re.findall(r"{{\s*(\w+)\s*}}", query.legend))
        if by_replica and not all(PROCESS_GAUGES.fullmatch(name) for name in names):
            yield f"{query.name}: {query.legend}"
        if not query.legend:
            yield f"{query.name}: no legend"


def nothing_measured_never_looks_healthy(board: Shape) -> Iterator[str]:
    """Panels without data say so in words, and the colour they get then, the lowest, is not green."""
    for panel in panels(board):
        defaults = panel["fieldConfig"]["defaults"]
        if not defaults.get("noValue", "").strip():
            yield f"{panel['title']}: nothing is said where nothing is measured"
        thresholds = [defaults.get("thresholds", {})] + [
            one["value"]
            for override in panel["fieldConfig"]["overrides"]
            for one in override["properties"]
            if one["id"] == "thresholds"
        ]
        for one in thresholds:
            lowest = one.get("steps", [{}])[0]
            if lowest.get("value") is not None or lowest.get("color", "green") in GREENS:
                yield f"{panel['title']}: without a value it is {lowest.get('color')}"


def links_lead_somewhere(board: Shape) -> Iterator[str]:
    """Links lead to a board that exists, or to a page of Coalmine."""
    check = r"\$\{(check|__field\.labels\.check|__data\.fields\.Check)\}"
    listed = rf"(alerts|deliveries)(\?(state|severity)=[a-z]+|\?check={check})?"
    pages = rf"\$\{{coalmine_url:raw\}}/({listed}|checks/{check}(/plants|/facts)?|hooks/\$\{{__data\.fields\.Hook\}})?"
    others = r"/d/coalmine-(overview|check|comparison|itself)\?[^ ]*\$\{__url_time_range\}[^ ]*"
    found = links(board)
    yield from (f"link to {url}" for url in found if not re.fullmatch(f"{pages}|{others}", url))
    if not any(link["type"] == "dashboards" and link["keepTime"] and link["includeVars"] for link in board["links"]):
        yield "no links to the other boards that keep time and variables"


RULES: tuple[Rule, ...] = (
    every_query_goes_to_the_chosen_data_source,
    everything_has_a_title,
    everything_is_described,
    everything_has_a_unit,
    ids_are_unique,
    panels_do_not_overlap,
    rates_fit_the_step,
    the_uid_is_stable,
    replicas_never_double,
    only_variables_that_exist_are_used,
    legends_name_no_replica,
    nothing_measured_never_looks_healthy,
    links_lead_somewhere,
)


def _aggregated(
    node: promql_parser.Expr, operation: str | None = None, labels: frozenset[str] = frozenset()
) -> Iterator[tuple[str, str | None, set[str]]]:
    """Give each selected name with the innermost aggregation over it and the labels that one keeps."""
    if isinstance(node, promql_parser.AggregateExpr):
        by = node.modifier
        kept = frozenset(by.labels) if by is not None else frozenset()
        if by is not None and by.type == promql_parser.AggModifierType.Without:
            kept = frozenset(OF_A_REPLICA - kept)
        yield from _aggregated(node.expr, str(node.op), kept)
    elif isinstance(node, promql_parser.VectorSelector):
        yield node.name or "", operation, set(labels)
    elif isinstance(node, promql_parser.MatrixSelector):
        yield node.vector_selector.name or "", operation, set(labels)
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from _aggregated(node.lhs, operation, labels)
        yield from _aggregated(node.rhs, operation, labels)
    elif isinstance(node, promql_parser.ParenExpr | promql_parser.UnaryExpr | promql_parser.SubqueryExpr):
        yield from _aggregated(node.expr, operation, labels)
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from _aggregated(argument, operation, labels)


def _used(text: str) -> set[str]:
    return {name or bare for name, bare in VARIABLE.findall(text)}
