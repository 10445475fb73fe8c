"""The kinds of panel the boards are made of, with what all of them share.

Each gets a stable id, a description in plain words, a unit and words for "no data". The colour below every threshold
is neutral: where nothing was measured nothing looks healthy, and a text always says what a colour means.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as c
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import heatmap as h
from grafana_foundation_sdk.models import prometheus as p

from deploy.grafana.queries import DEGRADED, HEALTHY, OVERDUE, UNKNOWN

SOURCE = c.DataSourceRef(type_val="prometheus", uid="${datasource}")
NEUTRAL, GOOD, WARN, BAD, ODD = "text", "green", "orange", "red", "purple"
RATIO, SECONDS, COUNT, MOMENT = "percentunit", "s", "short", "dateTimeFromNow"
NO_STATE = "Unknown: no state from Coalmine"
NOT_MEASURED = "not measured"

BETTER_HIGH = ((None, NEUTRAL), (0.0, BAD), (0.8, WARN), (0.95, GOOD))
"""Colours for ratios of which 1 is best. A guide for the eye: the verdict is decided by the rules of the check."""
ANY_IS_BAD = ((None, NEUTRAL), (0.0, GOOD), (1.0, BAD))
ANY_IS_A_WARNING = ((None, NEUTRAL), (0.0, GOOD), (1.0, WARN))
PLAIN = ((None, NEUTRAL),)
Steps = Sequence[tuple[float | None, str]]

VERDICTS = {
    str(HEALTHY): ("healthy", GOOD),
    str(DEGRADED): ("degraded", BAD),
    str(UNKNOWN): ("unknown", ODD),
    str(OVERDUE): ("overdue", WARN),
}
"""In words what `queries.verdict` gives."""
PanelT = TypeVar(
    "PanelT", timeseries.Panel, stat.Panel, table.Panel, statetimeline.Panel, bargauge.Panel, heatmap.Panel
)

COALMINE = "${coalmine_url:raw}"
CHECK_PAGE = f"{COALMINE}/checks/"
CHECK_BOARD = "/d/coalmine-check?${job:queryparam}&${datasource:queryparam}&${__url_time_range}&var-check="
OF_THE_SERIES, OF_THE_ROW = "${__field.labels.check}", "${__data.fields.Check}"


# --- queries -----------------------------------------------------------------------------------------------------


def over_time(expr: str, legend: str, *, exemplars: bool = False) -> prometheus.Dataquery:
    """Ask for a line, or for several told apart by `legend`."""
    return _query(expr).range().legend_format(legend).exemplar(exemplars)


def now(expr: str, legend: str = "__auto") -> prometheus.Dataquery:
    """Ask for the newest value."""
    return _query(expr).instant().legend_format(legend).exemplar(False)


def rows(expr: str) -> prometheus.Dataquery:
    """Ask for the newest values as rows of a table."""
    return now(expr).format(p.PromQueryFormat.TABLE)


def buckets(expr: str) -> prometheus.Dataquery:
    """Ask for a histogram."""
    return over_time(expr, "{{le}}", exemplars=True).format(p.PromQueryFormat.HEATMAP)


def _query(expr: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(SOURCE).editor_mode(p.QueryEditorMode.CODE).expr(expr)


# --- panels ------------------------------------------------------------------------------------------------------


def lines(id_: int, title: str, description: str, *queries: prometheus.Dataquery, unit: str) -> timeseries.Panel:
    """Draw values over time. Gaps stay gaps."""
    panel = (
        timeseries.Panel()
        .legend(_legend())
        .tooltip(common.VizTooltipOptions().mode(c.TooltipDisplayMode.MULTI).sort(c.SortOrder.DESCENDING))
        .line_width(1)
        .fill_opacity(5)
        .show_points(c.VisibilityMode.AUTO)
        .span_nulls(False)
        .color_scheme(dashboard.FieldColor().mode(d.FieldColorModeId.PALETTE_CLASSIC))
    )
    if unit == RATIO:
        panel = panel.min(0).max(1)
    elif unit == COUNT:
        panel = panel.min(0).decimals(0)
    return _panel(panel, id_, title, description, queries, unit=unit, steps=PLAIN, empty="No data in this time")


def bars(id_: int, title: str, description: str, *queries: prometheus.Dataquery, unit: str = COUNT) -> timeseries.Panel:
    """Draw counts of each step on top of each other."""
    return (
        lines(id_, title, description, *queries, unit=unit)
        .draw_style(c.GraphDrawStyle.BARS)
        .fill_opacity(60)
        .stacking(common.StackingConfig().mode(c.StackingMode.NORMAL).group("A"))
    )


def number(
    id_: int,
    title: str,
    description: str,
    query: prometheus.Dataquery,
    *,
    unit: str = COUNT,
    steps: Steps = PLAIN,
    empty: str = NO_STATE,
    texts: Mapping[str, tuple[str, str]] | None = None,
) -> stat.Panel:
    """Show the newest value in large."""
    panel = (
        stat.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .graph_mode(c.BigValueGraphMode.NONE)
        .color_mode(c.BigValueColorMode.VALUE if steps == PLAIN else c.BigValueColorMode.BACKGROUND)
        .text_mode(c.BigValueTextMode.AUTO)
        .mappings(mapped(texts or {}))
    )
    return _panel(panel, id_, title, description, [query], unit=unit, steps=steps, empty=empty)


def words(id_: int, title: str, description: str, query: prometheus.Dataquery, *, empty: str) -> stat.Panel:
    """Show a label: the legend of the series that is there."""
    return number(id_, title, description, query, unit="string", empty=empty).text_mode(c.BigValueTextMode.NAME)


def states(
    id_: int, title: str, description: str, query: prometheus.Dataquery, texts: Mapping[str, tuple[str, str]]
) -> statetimeline.Panel:
    """Draw states over time, a lane each. Gaps stay gaps."""
    panel = (
        statetimeline.Panel()
        .mappings(mapped(texts))
        .merge_values(True)
        .show_value(c.VisibilityMode.AUTO)
        .row_height(0.8)
        .fill_opacity(80)
        .line_width(0)
        .legend(_legend(c.LegendDisplayMode.LIST))
        .tooltip(common.VizTooltipOptions().mode(c.TooltipDisplayMode.SINGLE).sort(c.SortOrder.NONE))
        .color_scheme(dashboard.FieldColor().mode(d.FieldColorModeId.THRESHOLDS))
    )
    return _panel(panel, id_, title, description, [query], unit="string", steps=PLAIN, empty=NO_STATE)


def levels(
    id_: int, title: str, description: str, query: prometheus.Dataquery, *, unit: str = RATIO, steps: Steps
) -> bargauge.Panel:
    """Compare newest values as bars."""
    panel = (
        bargauge.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .orientation(c.VizOrientation.HORIZONTAL)
        .display_mode(c.BarGaugeDisplayMode.BASIC)
        .value_mode(c.BarGaugeValueMode.TEXT)
        .show_unfilled(True)
        .min(0)
    )
    if unit == RATIO:
        panel = panel.max(1)
    return _panel(panel, id_, title, description, [query], unit=unit, steps=steps, empty=NO_STATE)


def grid(
    id_: int,
    title: str,
    description: str,
    *queries: prometheus.Dataquery,
    unit: str = COUNT,
    steps: Steps = PLAIN,
    empty: str = NOT_MEASURED,
) -> table.Panel:
    """Show a table of newest values; transformations say how queries become columns."""
    panel = table.Panel().show_header(True).cell_height(c.TableCellHeight.SM).filterable(True)
    if steps != PLAIN:
        panel = panel.cell_options(c.TableColoredBackgroundCellOptions(mode=c.TableCellBackgroundDisplayMode.BASIC))
    return _panel(panel, id_, title, description, queries, unit=unit, steps=steps, empty=empty)


def heat(id_: int, title: str, description: str, query: prometheus.Dataquery) -> heatmap.Panel:
    """Draw a histogram of seconds over time, with exemplars."""
    panel = (
        heatmap.Panel()
        .calculate(False)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(h.HeatmapColorMode.SCHEME)
            .scheme("Oranges")
            .fill("dark-orange")
            .scale(h.HeatmapColorScale.EXPONENTIAL)
            .exponent(0.5)
            .steps(64)
        )
        .y_axis(heatmap.YAxisConfig().unit(SECONDS).axis_placement(c.AxisPlacement.LEFT))
        .cell_values(heatmap.CellValues().unit(COUNT))
        .show_legend()
        .exemplars_color("rgba(255,0,255,0.7)")
        .scale_distribution(common.ScaleDistributionConfig().type(c.ScaleDistribution.LINEAR))
    )
    return _panel(panel, id_, title, description, [query], unit=SECONDS, steps=PLAIN, empty="No data in this time")


# --- parts of panels ---------------------------------------------------------------------------------------------


def linked(panel: PanelT, check: str = OF_THE_SERIES) -> PanelT:
    """Lead from a value to the check it is of: to its page in Coalmine and to its board."""
    return panel.data_links(
        [
            dashboard.DashboardLink("Open the check in Coalmine").url(f"{CHECK_PAGE}{check}").target_blank(True),
            dashboard.DashboardLink("Show the check's board").url(f"{CHECK_BOARD}{check}").target_blank(False),
        ]
    )


def paged(panel: PanelT, title: str, path: str) -> PanelT:
    """Lead from a value to a page of Coalmine."""
    return panel.data_links([dashboard.DashboardLink(title).url(f"{COALMINE}{path}").target_blank(True)])


def check_links(check: str) -> list[dict[str, Any]]:
    """Give the same links for a column of a table."""
    return [
        {"title": "Open the check in Coalmine", "url": f"{CHECK_PAGE}{check}", "targetBlank": True},
        {"title": "Show the check's board", "url": f"{CHECK_BOARD}{check}", "targetBlank": False},
    ]


def logarithmic() -> common.ScaleDistributionConfig:
    """Give the scale for what grows by factors."""
    return common.ScaleDistributionConfig().type(c.ScaleDistribution.LOG).log(10)


def in_colour(color: str) -> list[d.DynamicConfigValue]:
    """Draw a series in the colour its name has everywhere."""
    return [setting("color", {"mode": "fixed", "fixedColor": color})]


def mapped(texts: Mapping[str, tuple[str, str]]) -> list[d.ValueMapping]:
    """Say values in words, each with its colour."""
    options = {
        value: d.ValueMappingResult(text=text, color=color, index=place)
        for place, (value, (text, color)) in enumerate(texts.items())
    }
    return [d.ValueMap(options=options)] if options else []


def setting(name: str, value: object) -> d.DynamicConfigValue:
    """Set one property of an override."""
    return d.DynamicConfigValue(id_val=name, value=value)


def coloured(steps: Steps) -> list[d.DynamicConfigValue]:
    """Colour the cells of a column."""
    found = [{"value": value, "color": color} for value, color in steps]
    return [
        setting("thresholds", {"mode": "absolute", "steps": found}),
        setting("custom.cellOptions", {"type": "color-background", "mode": "basic"}),
    ]


def merged(names: Mapping[str, str]) -> list[d.DataTransformerConfig]:
    """Make one table of all queries: a row for each check, with columns of these names in this order; "" hides one."""
    order = {field: place for place, field in enumerate(names)}
    hidden = {"Time": True, **{field: True for field, name in names.items() if not name}}
    shown = {field: name for field, name in names.items() if name}
    organized = {"excludeByName": hidden, "indexByName": order, "renameByName": shown}
    return [
        d.DataTransformerConfig(id_val="merge", options={}),
        d.DataTransformerConfig(id_val="organize", options=organized),
    ]


def matrix(rows_by: str, columns_by: str) -> list[d.DataTransformerConfig]:
    """Make a table with a row for each value of one label and a column for each of another."""
    options = {"rowField": rows_by, "columnField": columns_by, "valueField": "Value", "emptyValue": "null"}
    return [d.DataTransformerConfig(id_val="groupingToMatrix", options=options)]


def _panel(
    panel: PanelT,
    id_: int,
    title: str,
    description: str,
    queries: Sequence[prometheus.Dataquery],
    *,
    unit: str,
    steps: Steps,
    empty: str,
) -> PanelT:
    for place, query in enumerate(queries):
        panel = panel.with_target(query.ref_id(chr(ord("A") + place)))
    thresholds = dashboard.ThresholdsConfig().mode(d.ThresholdsMode.ABSOLUTE)
    return (
        panel.id(id_)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .no_value(empty)
        .thresholds(thresholds.steps([d.Threshold(value=value, color=color) for value, color in steps]))
    )


def _legend(mode: c.LegendDisplayMode = c.LegendDisplayMode.TABLE) -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(True).display_mode(mode).placement(c.LegendPlacement.BOTTOM)
    return legend.calcs(["lastNotNull", "min", "max"] if mode is c.LegendDisplayMode.TABLE else [])
