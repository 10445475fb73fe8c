"""What a comparison of checks and retrievers says of what happened since their newest runs: edits, and open alerts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.base.db.engine import Store
from app.cli import app
from app.comparison.service import comparisons
from tests.support.api_service import CHECK as API_CHECK
from tests.support.api_service import Api, api
from tests.support.fakes import answered, hits
from tests.support.html_pages import Page
from tests.support.world import CHECK, RETRIEVER, World, canary, page

KEYS = tuple(f"c{number:02}" for number in range(30))
OTHER = "second"
ALARM = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.8}, "open": {"bad": 1, "of": 1}}


def described(
    *,
    url: str = "http://b.example",
    second: Mapping[str, Any] | None = None,
    edited: Sequence[str] = (),
    keys: Sequence[str] = KEYS,
) -> dict[str, Any]:
    """Describe two checks over one suite and two retrievers; `edited` canaries expect another chunk."""
    canaries = [canary(key, **({"expected_chunks": ["zz"]} if key in edited else {})) for key in keys]
    made = page(canaries, rules=[], hooks=[])
    made["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other", "url": url}]
    made["checks"].append({**made["checks"][0], "slug": OTHER, "retriever": "other", **(second or {})})
    return made


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give two checks that have run, of which the second one is better."""
    world = World(store=sqlite_store)
    world.apply(described())
    world.probe.answers = {key: answered(hits("noise")) for key in KEYS[:12]}
    world.run()
    world.probe.answers = {}
    world.run(OTHER)
    return world


def cautions(world: World, a: str = f"check:{CHECK}", b: str = f"check:{OTHER}") -> list[tuple[str, str]]:
    """Return kinds and sentences of the cautions of a comparison, those of its page alike."""
    found = comparisons.compare_references(world.store, a, b)[0]["cautions"]
    shown = comparisons.show_side_by_side(world.store, a, b).decision["cautions"]
    assert [one["sentence"] for one in shown] == [one["sentence"] for one in found]
    return [(one["kind"], one["sentence"]) for one in found]


def test_a_check_that_is_archived_is_told_as_such(world: World) -> None:
    made = described()
    world.apply({**made, "checks": made["checks"][:1]})
    newest = comparisons.compare_references(world.store, f"check:{CHECK}", f"check:{OTHER}")[1].b.row.id
    assert cautions(world) == [
        ("archived", f"check '{OTHER}' is archived: run {newest} stays its newest, whatever changes")
    ]
    assert cautions(world, b=f"run:{newest}") == []


def test_nothing_is_said_where_nothing_happened_since(world: World) -> None:
    assert cautions(world) == []


def test_a_retriever_that_was_edited_since_is_told_of_check_and_retriever_and_not_of_a_run(world: World) -> None:
    world.apply(described(url="http://c.example"))
    says = f"run 2 of check '{OTHER}' asked retriever 'other' before its url changed: run it again"
    assert cautions(world) == [("outdated", says)]
    assert cautions(world, "run:1", "retriever:other") == [("outdated", says)]
    assert cautions(world, "run:1", "run:2") == [], "what it was is what was asked for"
    assert cautions(world, f"check:{CHECK}", "run:2") == []
    world.run(OTHER)
    assert cautions(world) == []


def test_a_check_that_asks_another_retriever_or_to_another_depth_is_told(world: World) -> None:
    world.apply(described(second={"retriever": RETRIEVER["slug"]}))
    asks = f"run 2 of check '{OTHER}' asked retriever 'other', and the check asks '{RETRIEVER['slug']}' by now"
    assert cautions(world) == [("outdated", f"{asks}: run it again")]
    world.apply(described(second={"k": 3}))
    assert cautions(world) == [("outdated", f"run 2 of check '{OTHER}' was of k 5, which is 3 by now: run it again")]


def test_canaries_that_were_changed_since_both_runs_are_counted(world: World) -> None:
    world.apply(described(edited=KEYS[:3]))
    since = f"since run 2 of check '{OTHER}'"
    edited = ("edited", f"{since} 3 of 30 canaries of suite 'suite' were edited or added: run both checks again")
    assert cautions(world) == [edited]
    world.apply(described(edited=KEYS[:1], keys=KEYS[:-2]))
    assert cautions(world) == [
        ("edited", f"{since} 1 of 28 canaries of suite 'suite' was edited or added: run both checks again"),
        (
            "edited",
            f"{since} 2 canaries of suite 'suite' were archived, and still count here: run both checks again",
        ),
    ]
    world.apply(described(edited=KEYS[:15]))
    assert cautions(world) == [
        ("outdated", f"run 1 of check '{CHECK}' was before 15 of 30 canaries were edited or added: run it again"),
        ("outdated", f"run 2 of check '{OTHER}' was before 15 of 30 canaries were edited or added: run it again"),
    ]
    world.run()
    assert [kind for kind, _ in cautions(world)] == ["outdated"], "the other one is left"
    world.run(OTHER)
    assert cautions(world) == []


def test_open_alerts_of_either_check_are_told(world: World) -> None:
    world.apply(described(second={"rules": [ALARM]}))
    world.probe.answers = {key: answered(hits("noise")) for key in KEYS[:12]}
    world.run(OTHER)
    [(kind, says)] = cautions(world)
    assert kind == "alert"
    assert says.startswith(f"alert 1 of check '{OTHER}' is open (critical, rule ")
    assert says.endswith("): what was measured meanwhile may be caused by that fault")
    [found] = comparisons.compare_references(world.store, f"check:{OTHER}", "run:1")[0]["cautions"]
    assert found["alert_id"] == "1"
    assert cautions(world, "run:1", "run:3") == []
    world.probe.answers = {}
    for _ in range(3):
        world.run(OTHER)
    assert cautions(world) == []


def compare(service: Api, *arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["compare", *arguments, "--data-dir", str(service.service.settings.data_dir)])
    return found.exit_code, found.stdout


def test_the_command_ends_with_2_where_a_run_is_of_something_else_by_now_unless_b_is_worse(tmp_path: Path) -> None:
    keys = [f"q{number:02}" for number in range(24)]
    with api(tmp_path) as service:
        service.docs(canaries=[{"key": key, "query": f"ask {key}", "expected_chunks": ["c1"]} for key in keys])
        service.put("/v1/checks/candidate", {**API_CHECK, "hooks": []})
        service.retriever.found = {f"ask {key}": ["c9"] for key in keys[:8]}
        service.run()
        service.retriever.found = {}
        service.run("candidate")
        assert compare(service, "check:docs", "check:candidate")[0] == 0
        service.put("/v1/checks/candidate", {**API_CHECK, "hooks": [], "k": 2})
        says = "Run 2 of check 'candidate' was of k 3, which is 2 by now: run it again."
        code, text = compare(service, "check:docs", "check:candidate")
        assert (code, says in text) == (2, True)
        code, text = compare(service, "check:candidate", "check:docs")
        assert (code, says in text) == (1, True), "worse it stays"
        assert compare(service, "run:1", "run:2")[0] == 0
        shown = Page(service.client.get("/compare?a=check:docs&b=check:candidate").text).one("main").text
        assert says in " ".join(shown.split())
