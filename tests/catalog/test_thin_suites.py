"""Suites too thin to see damage: how many canaries it takes, and that it is said wherever suites are put in force."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from app.base.db.engine import Store
from app.base.values import Canary, Category, Judgment
from app.catalog.documents.warnings import suite_notes
from app.catalog.service import suites
from app.catalog.store import API, FILE
from app.cli import app
from app.scoring.suites import (
    FEWEST_PER_TOPIC,
    canaries_for,
    coverage_note,
    detection_limits,
    power_of,
    smallest_fraction,
)
from tests.support.api_service import CANARIES, api
from tests.support.world import World, canary, documents, page


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def _canaries(count: int, **more: Any) -> list[Canary]:
    """Make canaries that expect a chunk of their own each."""
    name = f"{more}"
    return [Canary(key=f"c{n}", query="?", judgments=(Judgment(id=f"{name}{n}"),), **more) for n in range(count)]


LOSSES = 300


def _hit_by(fraction: float, canaries: Sequence[Canary], *, seed: int) -> tuple[float, float]:
    """Lose this share of 2,000 chunks at random, often: in which share of cases one loses a chunk, and one fails."""
    rng = np.random.default_rng(seed)
    hit = failed = 0
    for _ in range(LOSSES):
        gone = {f"x{number}" for number in rng.choice(2_000, round(2_000 * fraction), replace=False).tolist()}
        lost = [sum(one.id in gone for one in canary.judgments) / len(canary.judgments) for canary in canaries]
        hit += any(lost)
        failed += any(share == 1 or 1 - share < floor(canary) for share, canary in zip(lost, canaries, strict=True))
    return hit / LOSSES, failed / LOSSES


def floor(canary: Canary) -> float:
    return canary.floors.get("R@5", 0.0) - 1e-9


@pytest.mark.parametrize(
    ("sizes", "floors"),
    [((1,), {}), (tuple(range(2, 9)), {}), ((3,), {}), ((5,), {"R@5": 0.8}), ((1, 8, 8, 8, 8, 8), {})],
)
def test_the_losses_that_hit_a_canary_and_make_one_fail_are_those_of_a_simulation(
    sizes: tuple[int, ...], floors: dict[str, float]
) -> None:
    """Canaries that expect several chunks lose one early and all of them late."""
    rng = np.random.default_rng(7)
    canaries = [
        Canary(
            key=f"c{number}",
            query="?",
            judgments=tuple(
                Judgment(id=f"x{one}") for one in rng.choice(2_000, sizes[number % len(sizes)], replace=False).tolist()
            ),
            floors=floors,
        )
        for number in range(90)
    ]
    power = power_of(canaries)
    assert power.smallest_fraction is not None
    assert power.failing_fraction is not None
    assert _hit_by(power.smallest_fraction, canaries, seed=1)[0] >= 0.92
    assert 0.92 <= _hit_by(power.failing_fraction, canaries, seed=2)[1] < 1
    assert _hit_by(power.failing_fraction * 0.7, canaries, seed=3)[1] < 0.92
    if sizes == (1,):
        lost = f"if {100 * power.smallest_fraction:.2g} % of the index were lost"
        assert power.sentence == f"{lost}, a canary would fail in 95 of 100 cases"
    else:
        assert power.failing_fraction > power.smallest_fraction
        assert power.sentence.endswith(f", and one would fail from {100 * power.failing_fraction:.2g} % on")


def test_canaries_that_expect_the_same_see_no_more_than_one_of_them() -> None:
    alike = [Canary(key=f"c{number}", query="?", judgments=(Judgment(id=f"x{number % 20}"),)) for number in range(100)]
    found = power_of(alike)
    assert found.smallest_fraction == pytest.approx(0.15)
    note = "100 canaries that expect 20 different things can miss a loss of 5 % of the index, 60 would notice it"
    assert coverage_note("docs", found) == f"suite 'docs' is thin: {note}"


def test_it_takes_three_canaries_over_the_fraction() -> None:
    assert canaries_for(0.01) == 300
    assert canaries_for(0.05) == 60
    assert smallest_fraction(300) == pytest.approx(0.01)
    for fraction in (0.01, 0.05, 0.2):
        assert 1 - (1 - fraction) ** canaries_for(fraction) >= 0.95


def test_a_suite_of_two_canaries_surely_sees_nothing() -> None:
    assert smallest_fraction(2) is None
    assert smallest_fraction(3) == 1
    note = coverage_note("docs", power_of(_canaries(2)))
    assert note is not None
    assert note == "suite 'docs' is thin: 2 canaries can miss a loss of 5 % of the index, 60 would notice it"


def test_sixty_canaries_of_one_topic_are_not_thin() -> None:
    assert coverage_note("docs", power_of(_canaries(60))) is None
    note = coverage_note("docs", power_of(_canaries(59)))
    assert note == "suite 'docs' is thin: 59 canaries can miss a loss of 5 % of the index, 60 would notice it"


def test_canaries_that_expect_nothing_see_nothing() -> None:
    blind = [
        *_canaries(100, category=Category.NEGATIVE),
        Canary(key="open", query="?"),
        Canary(key="irrelevant", query="?", judgments=(Judgment(id="x", grade=0),)),
    ]
    found = power_of(blind)
    assert found.canaries == 0
    assert found.topics == ()
    assert found.smallest_fraction is None
    assert coverage_note("docs", found) == "suite 'docs' is thin: no canary expects anything, so no loss is noticed"


def test_every_category_and_tag_needs_three_canaries() -> None:
    many = _canaries(60, tags=("all",))
    found = power_of([*many, *_canaries(1, tags=("billing", "billing")), *_canaries(2, category=Category.PROCEDURAL)])
    assert [(topic.kind, topic.name, topic.canaries) for topic in found.thin_topics] == [
        ("tag", "billing", 1),
        ("category", "procedural", 2),
    ]
    told = "ag billing has 1 canary, category procedural 2; 3 are needed to judge each"
    assert coverage_note("docs", found) == f"suite 'docs' is thin: t{told}"
    assert detection_limits(found) == (f"T{told}.",)
    assert not power_of([*many, *_canaries(FEWEST_PER_TOPIC, tags=("billing",))]).thin_topics


def test_a_category_that_all_canaries_have_is_no_topic_nor_is_the_default_one_which_nobody_stated() -> None:
    assert power_of(_canaries(60)).topics == ()
    assert [one.name for one in power_of([*_canaries(60, tags=("all",))]).topics] == ["all"]
    mixed = power_of([*_canaries(2), *_canaries(60, category=Category.PROCEDURAL)])
    assert [one.name for one in mixed.topics] == ["procedural"]


def test_a_note_names_the_worst_topics_and_counts_the_rest() -> None:
    found = power_of([*_canaries(60), *[one for n in range(9) for one in _canaries(1 + (n > 0), tags=(f"t{n}",))]])
    note = coverage_note("docs", found)
    assert note is not None
    assert note.endswith("tag t0 has 1 canary, tag t1 2, tag t2 2 and 6 more too few; 3 are needed to judge each")


def test_notes_count_the_canaries_others_own_in_the_suite(store: Store) -> None:
    world = World(store=store)
    files = page([canary(f"f{n}") for n in range(40)])
    world.apply(files)
    assert "40 canaries" in suites.notes_on_plan(store, documents(files), managed_by=FILE)[0]
    mine = {"suite": "suite", "canaries": [canary(f"a{n}") for n in range(30)]}
    assert suites.notes_on_plan(store, documents(mine), managed_by=API) == []
    assert "30 canaries" in suites.notes_on_plan(store, documents(mine), managed_by=FILE)[0], "a file replaces its own"


def test_files_are_told_thin_by_themselves() -> None:
    notes = suite_notes(documents(page([canary("a")]), {**page([canary("b")]), "suite": "other"}))
    assert [note.split(" is thin")[0] for note in notes] == ["suite 'suite'", "suite 'other'"]


def test_a_suite_shows_what_damage_it_can_see(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        put = service.put("/v1/suites/docs", {"canaries": CANARIES})
        shown = service.get("/v1/suites/docs")
        assert put == shown
        assert shown["reach"] == {
            "canaries": 2,
            "smallest_fraction": None,
            "failing_fraction": None,
            "thin_topics": [
                {"kind": "category", "name": "procedural", "canaries": 1},
                {"kind": "tag", "name": "data", "canaries": 1},
                {"kind": "tag", "name": "legal", "canaries": 2},
            ],
        }
        assert shown["coverage_note"].startswith("suite 'docs' is thin: 2 canaries can miss a loss of 5 %")
        many = [{"key": f"c{n}", "query": "?", "expected_chunks": [f"x{n}"]} for n in range(100)]
        thick = service.put("/v1/suites/docs", {"canaries": many})
        assert thick["coverage_note"] is None
        assert thick["reach"]["smallest_fraction"] == pytest.approx(0.03)
        assert thick["reach"]["failing_fraction"] == pytest.approx(0.03, abs=1e-4)


def test_commands_note_a_thin_suite_beside_their_result(tmp_path: Path) -> None:
    file, store = tmp_path / "canaries.yaml", ("--data-dir", tmp_path / "data")
    canary_file = "suite: small\ncanaries:\n- {key: a, query: q, expected_chunks: [x], tags: [billing]}\n"
    file.write_text(canary_file, encoding="utf-8")
    run("migrate", *store)
    for command in (("validate", file), ("diff", file, *store), ("apply", file, *store)):
        result = run(*command)
        assert result.exit_code == 0, result.output
        assert "thin" not in result.stdout
        (note,) = [line for line in result.stderr.splitlines() if line.startswith("Note: ")]
        assert note.startswith("Note: suite 'small' is thin: 1 canary can miss a loss of 5 % of the index")
        assert note.endswith("60 would notice it.")
