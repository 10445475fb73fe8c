"""What every board shares: the frame, its variables, annotations and links, and how panels are laid out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import dashboard, prometheus
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import prometheus as p

from deploy.grafana.panels import SOURCE
from deploy.grafana.queries import INTERVAL, JOB, OPEN, known, new_index_version, series, state

COALMINE_URL = "http://127.0.0.1:8000"
TAG = "coalmine"
WIDTH = 24
ALL = ".+"

Panels = Sequence[tuple[Builder[d.Panel], int]]
"""A line of panels, each with its width in columns of `WIDTH`."""
Variable = Builder[d.VariableModel]
Annotation = Builder[d.AnnotationQuery]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A row of a board: its title, its stable id, and lines of panels, each line with a height in grid units."""

    id: int
    title: str
    lines: Sequence[tuple[int, Panels]]
    folded: bool = False
    """Shown, and its queries sent, only once somebody opens it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A board before it is laid out."""

    uid: str
    title: str
    description: str
    since: str
    page: tuple[str, str]
    """Where Coalmine shows the same: the title of the link, and the path."""
    variables: Sequence[Variable]
    annotations: Sequence[Annotation]
    sections: Sequence[Section]


def laid_out(board: Board, coalmine_url: str) -> d.Dashboard:
    """Put a board together; panels stand where the sections say."""
    title, path = board.page
    built = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .time(board.since, "now")
        .timezone("browser")
        .refresh("1m")
        .timepicker(dashboard.TimePicker().refresh_intervals(["10s", "30s", "1m", "5m", "15m", "1h"]))
        .tooltip(d.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(_link("Boards of Coalmine", d.DashboardLinkType.DASHBOARDS).tags([TAG]).include_vars(True))
        .link(_link(title, d.DashboardLinkType.LINK).url(f"${{coalmine_url:raw}}{path}").target_blank(True))
        .variables([*board.variables, _constant("coalmine_url", coalmine_url)])
        .annotations(list(board.annotations))
        .build()
    )
    built.panels = _panels(board.sections)
    return built


def _link(title: str, kind: d.DashboardLinkType) -> dashboard.DashboardLink:
    icon = "external link" if kind is d.DashboardLinkType.LINK else "dashboard"
    return dashboard.DashboardLink(title).type(kind).icon(icon).tooltip(title).keep_time(icon == "dashboard")


def _panels(sections: Sequence[Section]) -> list[d.Panel | d.RowPanel]:
    found: list[d.Panel | d.RowPanel] = []
    y = 0
    for section in sections:
        row = dashboard.Row(section.title).id(section.id).grid_pos(d.GridPos(h=1, w=WIDTH, x=0, y=y)).build()
        row.panels, row.collapsed = [], section.folded
        found.append(row)
        y += 1
        top = y
        for height, line in section.lines:
            x = 0
            for builder, width in line:
                panel = builder.build()
                panel.grid_pos = d.GridPos(h=height, w=width, x=x, y=y)
                (row.panels if section.folded else found).append(panel)
                x += width
            y += height
        y = top if section.folded else y
    return found


# --- variables ---------------------------------------------------------------------------------------------------


def sources() -> list[Variable]:
    """Let choose the data source, and the job of the installation: two installations never mix."""
    source = dashboard.DatasourceVariable("datasource").type("prometheus").label("Data source")
    return [
        source,
        one("job", "Installation", "The Prometheus job of Coalmine.", of="coalmine_store_up", within=()),
    ]


def one(
    name: str,
    label: str,
    description: str,
    *,
    of: str = INTERVAL,
    within: Sequence[str] = (JOB,),
    preferred: str | None = None,
) -> dashboard.QueryVariable:
    """Let choose one value of the label `name` of a metric's series, those that matchers select.

    `preferred` is chosen where it exists.
    """
    query = f"label_values({series(of, *within) if within else of}, {name})"
    variable = (
        dashboard.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(SOURCE)
        .query(query)
        .definition(query)
        .refresh(d.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(d.VariableSort.NATURAL_ASC)
        .multi(False)
        .include_all(False)
    )
    return variable.current(_option(preferred)) if preferred is not None else variable


def many(
    name: str,
    label: str,
    description: str,
    *,
    of: str = INTERVAL,
    within: Sequence[str] = (JOB,),
    preferred: Sequence[str] = (),
    all_value: str = ALL,
) -> dashboard.QueryVariable:
    """Let choose any number of such values; all of them unless some are preferred."""
    current = (
        d.VariableOption(selected=True, text=list(preferred), value=list(preferred))
        if preferred
        else d.VariableOption(selected=True, text=["All"], value=["$__all"])
    )
    variable = one(name, label, description, of=of, within=within)
    return variable.multi(True).include_all(True).all_value(all_value).current(current)


def _constant(name: str, value: str) -> Variable:
    # A constant is no part of a board's address, so nobody can be sent to a board whose links lead elsewhere.
    # The builder leaves `current` out, without which Grafana shows an empty value.
    built = dashboard.ConstantVariable(name).value(value).build()
    built.current = _option(value)
    return _Built(built)


def _option(value: str) -> d.VariableOption:
    return d.VariableOption(selected=True, text=value, value=value)


@dataclass(frozen=True, slots=True)
class _Built(Builder[d.VariableModel]):
    """A variable that is built already."""

    variable: d.VariableModel

    def build(self) -> d.VariableModel:
        return self.variable


# --- annotations -------------------------------------------------------------------------------------------------


def marks(*matchers: str) -> list[Annotation]:
    """Mark new index versions and the times alerts were open, of the checks these matchers select."""
    alerts = state("coalmine_alerts", JOB, OPEN, by=("check", "state", "severity"))
    fired = f"sum by (check, severity) ({alerts}) * on (check) group_left () {known(matchers)} > 0"
    version = new_index_version(*matchers)
    return [
        _annotation("Index versions", "blue", version, "New index version", "{{check}}: {{index_version}}", "check"),
        _annotation("Alerts", "red", fired, "Alert open", "{{check}}: {{severity}}", "check,severity"),
    ]


def _annotation(name: str, color: str, expr: str, title: str, text: str, tags: str) -> Annotation:
    target: Any = prometheus.Dataquery().datasource(SOURCE).expr(expr).range().ref_id("Anno")
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .enable(True)
        .hide(False)
        .icon_color(color)
        .target(target.editor_mode(p.QueryEditorMode.CODE))
        .expr(expr)
        .title_format(title)
        .text_format(text)
        .tag_keys(tags)
    )
