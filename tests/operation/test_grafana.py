"""The dashboards as they are committed: generated anew they are the same, every rule holds, every rule can fail.

No Grafana server can run where these tests run. Beside this, test_grafana_live.py asks every expression of a real
Prometheus, and test_grafana_types.py holds the JSON against the types that Grafana publishes.
"""

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.grafana_boards import FOLDER, GRAFANA, Shape, boards, panels, variables
from tests.support.grafana_lint import RULES, Rule

ROOT = Path(__file__).parents[2]
BOARDS = boards()
ITSELF = BOARDS["coalmine-itself"]


# --- generated ---------------------------------------------------------------------------------------------------


def _generated(folder: Path, *arguments: str) -> dict[str, str]:
    """Run the command; gives what it wrote by file name."""
    # In a process of its own: the SDK warns that there is a newer kind of dashboard, which older servers do not read.
    command = [sys.executable, "-m", "deploy.grafana.generate", "--into", str(folder), *arguments]
    subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - our own
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}


def test_the_committed_dashboards_are_what_the_code_writes(tmp_path: Path) -> None:
    committed = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()}
    assert _generated(tmp_path / "boards") == committed, "run `make dashboards`"


def test_the_command_writes_them_for_another_coalmine(tmp_path: Path) -> None:
    texts = _generated(tmp_path / "boards", "--coalmine-url", "https://coalmine.example/")
    assert set(texts) == {file.name for file in FOLDER.iterdir()}
    for text in texts.values():
        assert '"query": "https://coalmine.example"' in text
        assert "127.0.0.1" not in text


def test_the_boards_are_four_and_link_to_each_other() -> None:
    assert {(board["uid"], board["title"]) for board in BOARDS.values()} == {
        ("coalmine-overview", "Coalmine / Overview"),
        ("coalmine-check", "Coalmine / Check"),
        ("coalmine-comparison", "Coalmine / Retrievers compared"),
        ("coalmine-itself", "Coalmine / Service"),
    }
    for uid, board in BOARDS.items():
        assert board["uid"] == uid
        assert board["refresh"] == "1m"
        assert board["editable"] is False


@pytest.mark.parametrize("name", BOARDS)
def test_nobody_can_be_sent_to_a_board_whose_links_lead_elsewhere(name: str) -> None:
    (url,) = [one for one in variables(BOARDS[name]) if one["name"] == "coalmine_url"]
    assert (url["type"], url["query"], url["current"]["value"]) == ("constant", *["http://127.0.0.1:8000"] * 2)


@pytest.mark.parametrize("name", BOARDS)
def test_every_board_marks_new_index_versions_and_alerts(name: str) -> None:
    marks = {one["name"]: one["target"]["expr"] for one in BOARDS[name]["annotations"]["list"]}
    assert set(marks) == {"Index versions", "Alerts"}
    assert "coalmine_index_info" in marks["Index versions"]
    assert "coalmine_alerts" in marks["Alerts"]


def test_what_coalmine_says_of_itself_fits_on_a_screen_and_the_rest_is_folded() -> None:
    shown = [panel["gridPos"] for panel in ITSELF["panels"] if panel["type"] != "row"]
    assert 15 <= len(shown) <= 25
    assert all(row["collapsed"] == bool(row["panels"]) for row in ITSELF["panels"] if row["type"] == "row")
    assert max(place["y"] + place["h"] for place in shown) <= 30


def test_histograms_are_asked_with_their_exemplars() -> None:
    asked = [target for panel in panels(ITSELF) for target in panel["targets"] if "_bucket" in target["expr"]]
    assert len(asked) == 7
    assert all(target["exemplar"] for target in asked)


# --- rules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_board_keeps_every_rule(rule: Rule, name: str) -> None:
    assert list(rule(BOARDS[name])) == []


def _panel(board: Shape, title: str) -> Shape:
    (found,) = [panel for panel in panels(board) if panel["title"] == title]
    return found


def _asks(title: str, expr: str, legend: str | None = None) -> Callable[[Shape], None]:
    """Let a panel ask something else."""

    def change(board: Shape) -> None:
        target = _panel(board, title)["targets"][0]
        target["expr"] = expr
        target["legendFormat"] = target["legendFormat"] if legend is None else legend

    return change


def _with(title: str, *path: Any) -> Callable[[Shape], None]:
    """Set what lies at a path of a panel to the last word of the path; None removes it."""

    def change(board: Shape) -> None:
        place = _panel(board, title)
        for step in path[:-2]:
            place = place[step]
        if path[-1] is None:
            del place[path[-2]]
        else:
            place[path[-2]] = path[-1]

    return change


def _board(key: str, value: Any) -> Callable[[Shape], None]:
    return lambda board: board.update({key: value})


def _variable(name: str, key: str, value: Any) -> Callable[[Shape], None]:
    def change(board: Shape) -> None:
        next(one for one in variables(board) if one["name"] == name)[key] = value

    return change


NEWS = "Age of the oldest notification"
STATE, JOB = "coalmine_outbox_pending", '{job="$job"}'
RATE, LABEL = "rate(coalmine_runs_total[$__rate_interval])", 'label_values(x{a="$suite"}, job)'
EXTRA = {"name": "k", "query": ""}
BREAKS: list[tuple[str, str, Callable[[Shape], None]]] = [
    ("every_query_goes_to_the_chosen_data_source", "data source", _with(NEWS, "datasource", "uid", "abc")),
    ("every_query_goes_to_the_chosen_data_source", "target", _with(NEWS, "targets", 0, "datasource", None)),
    ("every_query_goes_to_the_chosen_data_source", "variable job", _variable("job", "datasource", None)),
    ("every_query_goes_to_the_chosen_data_source", "no variable", _variable("datasource", "type", "constant")),
    ("everything_has_a_title", "has no title", _with("Runs by verdict", "title", " ")),
    ("everything_has_a_title", "two panels", _with("Runs by verdict", "title", "Probes by outcome")),
    ("everything_is_described", "Runs by verdict: described by ''", _with("Runs by verdict", "description", "")),
    ("everything_is_described", "Coalmine / Service", _board("description", "Itself")),
    ("everything_has_a_unit", "unit None", _with("Runs by verdict", "fieldConfig", "defaults", "unit", None)),
    ("everything_has_a_unit", "unit sec", _with("Runs by verdict", "fieldConfig", "defaults", "unit", "sec")),
    ("ids_are_unique", "panel id 302", _with("Runs by verdict", "id", 302)),
    ("ids_are_unique", "panel id None", lambda board: _panel(board, "Runs by verdict").update(id=None)),
    ("ids_are_unique", "panel id 0", _with("Runs by verdict", "id", 0)),
    ("panels_do_not_overlap", "panels 301 and 302 overlap", _with("Runs by verdict", "gridPos", "w", 13)),
    ("panels_do_not_overlap", "lies outside", _with("Probes by outcome", "gridPos", "w", 13)),
    ("rates_fit_the_step", "increase over 5m", _asks("Runs by verdict", "sum(increase(coalmine_runs_total[5m]))")),
    ("rates_fit_the_step", "over $__interval", _asks(NEWS, "sum(rate(coalmine_runs_total[$__interval]))")),
    ("rates_fit_the_step", "over $__range", _asks("Runs by verdict", "sum(rate(coalmine_runs_total[$__range]))")),
    ("the_uid_is_stable", "uid 4f2b", _board("uid", "4f2b")),
    ("the_uid_is_stable", "id 7", _board("id", 7)),
    ("the_uid_is_stable", "no tag", _board("tags", [])),
    ("replicas_never_double", f"{STATE} under None", _asks("Runs by verdict", STATE + JOB)),
    ("replicas_never_double", f"{STATE} under sum", _asks("Runs by verdict", f"sum({STATE}{JOB})")),
    ("replicas_never_double", "by ['instance']", _asks("Runs by verdict", f"max by (instance) ({STATE}{JOB})")),
    ("replicas_never_double", "instance", _asks("Runs by verdict", f"max without (job) ({STATE}{JOB})")),
    ("replicas_never_double", "under count", _asks("Runs by verdict", f"count(coalmine_verdict{JOB})")),
    ("replicas_never_double", "under max", _asks("Runs by verdict", f"max({RATE})")),
    ("replicas_never_double", "under None", _asks("Runs by verdict", f"coalmine_store_up{JOB}")),
    ("replicas_never_double", "under None", _asks("Runs by verdict", f"max({STATE}{JOB}) + {STATE}{JOB}")),
    ("only_variables_that_exist_are_used", "unknown variable jobs", _asks("Runs by verdict", 'max(x{job="$jobs"})')),
    ("only_variables_that_exist_are_used", "uses suite before", _variable("job", "query", LABEL)),
    ("only_variables_that_exist_are_used", "never used", lambda board: variables(board).append(EXTRA)),
    ("legends_name_no_replica", "{{instance}}", _asks("Runs by verdict", f"max by (check) ({STATE})", "{{instance}}")),
    ("legends_name_no_replica", "no legend", _with("Runs by verdict", "targets", 0, "legendFormat", "")),
    (
        "nothing_measured_never_looks_healthy",
        "nothing is said",
        _with("Runs by verdict", "fieldConfig", "defaults", "noValue", None),
    ),
    (
        "nothing_measured_never_looks_healthy",
        "it is green",
        _with("Runs by verdict", "fieldConfig", "defaults", "thresholds", "steps", 0, "color", "green"),
    ),
    (
        "nothing_measured_never_looks_healthy",
        "without a value",
        _with("Runs by verdict", "fieldConfig", "defaults", "thresholds", "steps", 0, "value", 0),
    ),
    (
        "links_lead_somewhere",
        "link to /d/abc",
        _with("Runs by verdict", "fieldConfig", "defaults", "links", [{"url": "/d/abc?${__url_time_range}"}]),
    ),
    (
        "links_lead_somewhere",
        "link to http://127.0.0.1",
        _with("Runs by verdict", "fieldConfig", "defaults", "links", [{"url": "http://127.0.0.1:8000/"}]),
    ),
    ("links_lead_somewhere", "no links", _board("links", [])),
]  # fmt: skip


def test_a_rule_finds_what_it_is_for() -> None:
    for rule, complaint, break_ in BREAKS:
        board = copy.deepcopy(ITSELF)
        break_(board)
        (checked,) = [one for one in RULES if one.__name__ == rule]
        assert any(complaint in said for said in checked(board)), list(checked(board))


def test_every_rule_was_seen_to_fail() -> None:
    assert {rule for rule, _, _ in BREAKS} == {rule.__name__ for rule in RULES}


# --- provisioned -------------------------------------------------------------------------------------------------


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_grafana_is_given_the_boards_and_the_prometheus_of_compose() -> None:
    grafana = _yaml(ROOT / "docker-compose.yml")["services"]["grafana"]
    for kind in ("datasources", "dashboards"):  # the rest of that folder comes with the image
        folder = f"provisioning/{kind}"
        assert f"./deploy/grafana/{folder}:/etc/grafana/{folder}:ro" in grafana["volumes"]
    (provider,) = _yaml(GRAFANA / "provisioning/dashboards/coalmine.yml")["providers"]
    inside = Path(provider["options"]["path"]).relative_to("/etc/grafana/provisioning")
    assert GRAFANA / "provisioning" / inside == FOLDER
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (GRAFANA / "provisioning" / home.relative_to("/etc/grafana/provisioning")).exists()
    (source,) = _yaml(GRAFANA / "provisioning/datasources/coalmine.yml")["datasources"]
    assert (source["type"], source["uid"], source["url"]) == (
        "prometheus",
        "coalmine-prometheus",
        "http://prometheus:9090",
    )
    scraped = _yaml(ROOT / "deploy/prometheus/prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped, "$__rate_interval is four times as long"
    (exemplar,) = source["jsonData"]["exemplarTraceIdDestinations"]
    assert (exemplar["name"], exemplar["url"]) == ("run_id", "http://127.0.0.1:8000/runs/$${__value.raw}")


def test_grafana_in_compose_is_closed_and_tells_nobody() -> None:
    compose = _yaml(ROOT / "docker-compose.yml")
    grafana = compose["services"]["grafana"]
    assert grafana["image"] == "grafana/grafana:13.2.3"
    assert grafana["ports"] == ["127.0.0.1:3000:3000"]
    assert (grafana["read_only"], grafana["cap_drop"]) == (True, ["ALL"])
    assert grafana["secrets"] == ["grafana_admin_password"]
    environment = grafana["environment"]
    assert environment["GF_SECURITY_ADMIN_PASSWORD__FILE"] == "/run/secrets/grafana_admin_password"
    assert environment["GF_ANALYTICS_REPORTING_ENABLED"] == "false"
    assert environment["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"
    assert not any("ANONYMOUS" in name for name in environment)


def test_news_leads_to_the_board_of_its_check() -> None:
    app = _yaml(ROOT / "docker-compose.yml")["services"]["app"]["environment"]
    assert app["COALMINE_DASHBOARD_URL"] == "http://127.0.0.1:3000/d/coalmine-check?var-check={check}"
    assert "check" in {one["name"] for one in variables(BOARDS["coalmine-check"])}
