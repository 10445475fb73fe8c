"""Runbooks: one for each alert there can be, found by its link, with queries that parse and commands that exist."""

import re
from pathlib import Path
from typing import Any

import promql_parser
import yaml

from app.alerts.service.shown_alerts import Links, filled_links
from app.alerts.store import AlertRow
from app.base.values import RuleKind
from tests.operation.test_prometheus_rules import ALERTS, NAMES, RULE_FILES, RUNBOOKS, rules
from tests.reports.test_metrics import PROCESS, STATE
from tests.support.api_service import api

ROOT = Path(__file__).parents[2]
PAGES = sorted(file for file in RUNBOOKS.glob("*.md") if file.name != "README.md")
SELDOM = {
    "coalmine_detector_evidence",
    "coalmine_embedding_canary_cosine",
    "coalmine_index_fact",
    "coalmine_plant_found_seconds",
    "coalmine_plant_gone_seconds",
    "coalmine_plant_problem",
}
"""Series there are only of a detector that has learned, a retriever with a watched embedder, and planted documents."""
SECTIONS = ["What it means", "Impact", "Look", "Mend", "False alarms"]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def queries() -> list[tuple[str, str]]:
    """List every query of every runbook: (file, PromQL); a blank line parts two."""
    return [
        (file.stem, query)
        for file in (*PAGES, RUNBOOKS / "README.md")
        for block in blocks(file.read_text(encoding="utf-8"), "promql")
        for query in block.strip().split("\n\n")
    ]


def test_every_alert_and_every_kind_of_rule_has_a_runbook_and_there_is_no_other() -> None:
    assert {file.stem for file in PAGES} == {*NAMES, *map(str, RuleKind)}


def test_a_runbook_tells_what_it_means_how_to_look_and_what_to_do() -> None:
    for file in PAGES:
        text = file.read_text(encoding="utf-8")
        assert text.startswith(f"# {file.stem}\n")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS, file
        for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
            assert len(section.split()) > 8, f"{file} says something"
        assert blocks(text, "sh") or blocks(text, "promql"), f"{file} has something to type"


def test_the_index_leads_to_each() -> None:
    linked = re.findall(r"\]\((\w+)\.md\)", (RUNBOOKS / "README.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(file.stem for file in PAGES)


def test_no_link_of_a_runbook_is_dead() -> None:
    for file in (*PAGES, RUNBOOKS / "README.md"):
        for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", file.read_text(encoding="utf-8")):
            assert (file.parent / target).exists(), f"{file}: {target}"


def test_every_query_parses_and_names_series_there_are() -> None:
    recorded = {rule["record"] for rule in rules(*RULE_FILES) if "record" in rule}
    known = {
        *STATE,
        *PROCESS,
        *SELDOM,
        *(f"{one}_total" for one in PROCESS),
        *(f"{one}_bucket" for one in PROCESS),
        "up",
    }
    assert len(queries()) > 50
    for name, query in queries():
        assert promql_parser.parse(query) is not None, query
        named = set(re.findall(r"\b(?:job\w*:)?coalmine_\w+(?::\w+)*", query))
        assert named <= known | recorded, f"{name}: {named - known - recorded}"
        for aggregation in re.findall(r"\b(\w+) by \(([^)]*)\)", query):
            assert "instance" in aggregation[1] or aggregation[0] in {"max", "min", "sum", "count"}, query


def asked() -> list[str]:
    """List everything the runbooks ask of the API."""
    told = "\n".join(file.read_text(encoding="utf-8") for file in PAGES)
    return sorted(
        {line for block in blocks(told, "sh") for line in re.findall(r'^ask "?(/[^\s"]+)', block, re.MULTILINE)}
    )


def test_what_runbooks_ask_of_the_api_is_answered(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.docs()
        service.run()
        assert len(asked()) > 8
        for path in asked():
            answer = service.client.get(path)
            undiagnosed = path.endswith("/diagnosis") and "has no diagnosis yet" in answer.json()["detail"]
            assert answer.status_code == 200 or undiagnosed, f"{path}: {answer.text}"
        for path in ("/v1/hooks/ops/test", "/v1/hooks/ops/replay"):
            assert any(path in file.read_text(encoding="utf-8") for file in PAGES)
            assert service.client.post(path).status_code == 202


def test_events_runbooks_look_for_in_the_log_are_logged() -> None:
    told = "\n".join(file.read_text(encoding="utf-8") for file in PAGES)
    code = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "app").rglob("*.py"))
    events = {
        word
        for line in re.findall(r"docker compose logs app \| grep ([^|#\n]+)", told)
        for word in line.split()
        if word != "-e"
    }
    assert len(events) > 5
    for event in events:
        assert re.search(rf'logger\.\w+\([^)]*"{event}"', code), event


def test_links_take_the_names_of_an_alert_once() -> None:
    unsaid: dict[str, Any] = dict.fromkeys(AlertRow.__struct_fields__)
    alert = AlertRow(**{**unsaid, "check": "a-{rule}", "rule_key": "threshold-coverage", "kind": "threshold"})
    links = Links(public_url="http://c.test", runbook_url="https://r.test/{kind}.md?rule={rule}&check={check}&{other}")
    assert filled_links(links, alert, 7)["runbook"] == (
        "https://r.test/threshold.md?rule=threshold-coverage&check=a-{rule}&{other}"
    )


def test_the_link_of_every_kind_of_rule_leads_to_its_page_by_the_address_of_the_docs() -> None:
    unsaid: dict[str, Any] = dict.fromkeys(AlertRow.__struct_fields__)
    index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    (address,) = re.findall(r"`COALMINE_RUNBOOK_URL=(\S+)`", index)
    for kind in RuleKind:
        alert = AlertRow(**{**unsaid, "check": "watch", "rule_key": "mine", "kind": str(kind)})
        link = filled_links(Links(public_url="http://c.test", runbook_url=address), alert, 7)["runbook"] or ""
        assert (RUNBOOKS / link.removeprefix("https://wiki.example/coalmine/runbooks/")).is_file(), kind


def test_that_a_message_has_no_runbook_is_explained_where_its_fields_are() -> None:
    unsaid: dict[str, Any] = dict.fromkeys(AlertRow.__struct_fields__)
    alert = AlertRow(**{**unsaid, "check": "watch", "rule_key": "mine", "kind": "guard", "incident_id": 3})
    links = filled_links(Links(public_url="http://c.test"), alert, 7)
    fields = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    rows = [row for row in fields.splitlines() if row.startswith("|")]
    for name in (name for name, link in links.items() if link is None):
        (row,) = [row for row in rows if f"`links.{name}`" in row.split("|")[1]]
        assert f"`COALMINE_{name.upper()}_URL`" in row


def test_the_alerts_of_rules_are_those_of_the_shipped_files() -> None:
    read = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in RULE_FILES]
    assert sum(len(group["rules"]) for one in read for group in one["groups"]) == len(rules(*RULE_FILES))
    assert {rule["alert"] for rule in ALERTS} == set(NAMES)
