"""The same chunks with other texts: told at once, lost where what is expected is not in them, and healed."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.values import Verdict
from app.diagnosis import store as diagnoses
from app.records.store import run_rows
from app.runs.service.finalising import EndedRun
from app.scoring.text_changes import TextChange, change_of
from tests.support.fakes import answered, hits
from tests.support.library import TEXTS, Diagnosed, shelf
from tests.support.present import present
from tests.support.watched import LEARNED, REGRESSION, expect_retraced, seen
from tests.support.world import World, canary, page


def _reasons(setting: Diagnosed, run: EndedRun) -> str:
    with setting.store.read() as connection:
        return str(present(run_rows.find_run(connection, run.id)).reasons)


def _missing(setting: Diagnosed, run: EndedRun) -> set[str]:
    return {key for key, result in setting.world.results(run).items() if "missing" in result["reasons"]}


def _news(setting: Diagnosed) -> dict[str, Any]:
    assert setting.world.deliver() is not None
    data: dict[str, Any] = json.loads(setting.world.send.sent[-1][1].body)["data"]
    return data


WITH_TEXTS = [{**one, "expected_chunks": [{"id": one["key"], "text": TEXTS[one["key"]]}]} for one in shelf()]
"""Canaries that expect an id and a text."""


@pytest.mark.parametrize(
    ("show", "words", "canaries"),
    [
        (lambda text: text[:40], "cut to 40 characters in 100 %, empty in 0 % of 6 chunks compared", WITH_TEXTS),
        (lambda text: text[:40], "cut to 40 characters in 100 %, empty in 0 % of 6 chunks compared", shelf()),
        (lambda _: "", "cut in 0 %, empty in 100 % of 6 chunks compared", WITH_TEXTS),
        (lambda _: None, "cut in 0 %, empty in 100 % of 6 chunks compared", shelf()),
        (lambda _: "[REDACTED]", "rewritten in 100 % of 6 chunks compared", shelf()),
    ],
)
def test_texts_lost_under_the_same_ids_are_told_at_once_and_when_they_are_back(
    sqlite_store: Store, show: Callable[[str], str | None], words: str, canaries: list[dict[str, Any]]
) -> None:
    setting = Diagnosed.of(sqlite_store, canaries)
    assert setting.run().verdict is Verdict.HEALTHY
    setting.library.shown = show
    bad = setting.run()
    assert (bad.verdict, _missing(setting, bad)) == (Verdict.DEGRADED, set(TEXTS))
    assert f"Texts of the same chunks changed since run {bad.id}: {words}" in _reasons(setting, bad)
    news = _news(setting)
    assert news["summary"].endswith(f"texts of the same chunks changed ({words})")
    assert "accept" not in news["advice"]
    assert "text field" in news["advice"]
    assert setting.why("refunds").cause == "texts_changed"
    again = setting.run()
    assert (again.verdict, _missing(setting, again)) == (Verdict.DEGRADED, set(TEXTS))
    assert f"since run {bad.id}: {words}" in _reasons(setting, again)
    setting.library.shown = str
    well = setting.run()
    assert (well.verdict, _missing(setting, well)) == (Verdict.HEALTHY, set())
    assert "texts of the same" not in _reasons(setting, well).casefold()


def test_a_loss_lasts_while_the_texts_are_cut_otherwise(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    setting.library.shown = lambda text: text[:40]
    setting.run()
    setting.library.shown = lambda text: text[:30]
    run = setting.run()
    assert (run.verdict, _missing(setting, run)) == (Verdict.DEGRADED, set(TEXTS))
    assert "cut to 30 characters" in _reasons(setting, run)


def test_texts_in_another_form_lose_nothing(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store, WITH_TEXTS)
    setting.run()
    setting.library.shown = lambda text: text.upper().replace(" ", "\n\n")
    assert setting.run().verdict is Verdict.HEALTHY
    setting.library.shown = lambda text: f"<p>{text}</p>"
    assert setting.run().verdict is Verdict.HEALTHY


def test_one_edited_document_is_information(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    setting.library.chunks["refunds"] += " Fees are not paid back."
    run = setting.run()
    assert run.verdict is Verdict.HEALTHY
    assert "edited in" in _reasons(setting, run)
    assert "edited in" not in _reasons(setting, setting.run())


def test_one_document_written_anew_is_an_edit_and_no_loss(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    setting.library.shown = lambda text: "Something else entirely, by hand." if text == TEXTS["refunds"] else text
    run = setting.run()
    assert (run.verdict, _missing(setting, run)) == (Verdict.HEALTHY, set())
    assert "edited in" in _reasons(setting, run)


def test_one_emptied_text_loses_its_canary_alone(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store, WITH_TEXTS)
    setting.run()
    setting.library.shown = lambda text: "" if text == TEXTS["refunds"] else text
    bad = setting.run()
    assert (bad.verdict, _missing(setting, bad)) == (Verdict.DEGRADED, {"refunds"})
    setting.run()
    assert setting.why("refunds").cause == "texts_changed"


def test_nothing_is_claimed_of_a_retriever_that_never_returned_texts(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.library.shown = lambda _: None
    assert setting.run().verdict is Verdict.HEALTHY
    assert setting.run().verdict is Verdict.HEALTHY


@pytest.mark.parametrize(
    ("now", "change"),
    [
        ("Die Rückzahlung dauert zehn Tage.".encode().decode("latin-1"), TextChange.GARBLED),
        ("die rückzahlung\n dauert zehn tage", None),
        ("Die Rück", TextChange.CUT),
        (" ", TextChange.EMPTIED),
        ("Text not available", TextChange.REWRITTEN),
        ("<td>Die Rückzahlung</td> dauert <b>zehn Tage</b>.", TextChange.EDITED),
    ],
)
def test_a_changed_text_is_called_by_its_kind(now: str, change: TextChange | None) -> None:
    assert change_of("Die Rückzahlung dauert zehn Tage.", now) is change


def test_the_detector_led_over_stored_runs_sees_the_same_losses(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store, WITH_TEXTS, rules=[REGRESSION])
    for _ in range(LEARNED):
        setting.run(diagnosed=False)
    setting.library.shown = lambda text: text[:30]
    lost = [setting.run(diagnosed=False) for _ in range(3)]
    assert all(run.verdict is Verdict.DEGRADED for run in lost)
    assert seen(setting.world)[lost[-1].id].lost is not None
    expect_retraced(setting.world)


SHELF = 12


def _chapter(number: int) -> str:
    return f"Chapter {number}: how to grease gear {number * 7919} of pump {number * 104729} in {number + 3} steps"


def test_another_fault_that_follows_one_that_stands_begins_with_its_own_run(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    expected = [{"id": f"doc-{one}", "text": _chapter(one)} for one in range(SHELF)]
    world.apply(page([canary(f"q{place}", expected_chunks=[one]) for place, one in enumerate(expected)]))

    def carry_out(count: int, *, first: int = 0, prefix: str = "doc") -> list[tuple[str, int]]:
        for place in range(SHELF):
            chunks = [(place + first + one) % SHELF for one in range(4)]
            texts = {f"{prefix}-{one}": _chapter(one) for one in chunks}
            world.probe.answers[f"q{place}"] = answered(hits(*texts, texts=texts))
        ended = [world.run().id for _ in range(count)]
        with sqlite_store.read() as connection:
            causes = diagnoses.run_causes_of(connection, ended)
        return [(causes[one]["kind"], causes[one]["since_run"]) for one in ended if one in causes]

    assert carry_out(6) == []
    assert carry_out(3, first=5) == [("other_vectors", 7)] * 3  # nothing that was found is found
    assert carry_out(3, prefix="new") == [("reindexed", 10)] * 3  # it is found again, under other ids


def test_a_fault_that_follows_scores_which_moved_without_harm_is_told_of_the_present(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    canaries = [canary(f"q{place}", expected_chunks=[f"doc-{place}"]) for place in range(2 * SHELF)]
    world.apply(page(canaries, rules=[REGRESSION]))

    def carry_out(count: int, *, scale: float, lagging: bool = False) -> list[tuple[int, str, int, int]]:
        for place in range(2 * SHELF):
            found = {f"doc-{(place + step) % (2 * SHELF)}": scale * (0.9 - 0.03 * step) for step in range(12)}
            if lagging and place % 2:  # every second answer is of a replica that lacks a quarter
                found = {name: score for name, score in found.items() if int(name[4:]) % 4 != 1}
            found = dict(list(found.items())[:8])
            world.probe.answers[f"q{place}"] = answered(hits(*found, scores=list(found.values())))
        ended = [world.run().id for _ in range(count)]
        with sqlite_store.read() as connection:
            causes = diagnoses.run_causes_of(connection, ended)
        return [(run, cause["kind"], cause["since_run"], cause["before_run"]) for run, cause in sorted(causes.items())]

    assert carry_out(LEARNED, scale=1.0) == []
    moved = LEARNED + 1
    scores = [(run, "scores_changed", moved, LEARNED) for run in (moved, moved + 1)]
    assert carry_out(2, scale=0.5) == scores
    told = [sum("Scores" in reason for reason in world.shown(run)["reasons"]) for run in (moved, moved + 1)]
    assert told == [1, 0], "once, by the run in which they moved"
    lagging = carry_out(2, scale=0.5, lagging=True)
    assert lagging == [(run, "replicas_differ", moved + 2, moved + 1) for run in (moved + 2, moved + 3)]
    assert carry_out(2, scale=0.5) == [], "after it things are as they were before it"


def test_a_fault_after_another_one_is_not_told_as_replicas_once_nothing_alternates(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    canaries = [canary(f"q{place}", expected_chunks=[f"doc-{place}"]) for place in range(4 * SHELF)]
    world.apply(page(canaries, rules=[REGRESSION]))

    def carry_out(count: int, *, without: range = range(0)) -> list[tuple[str, int]]:
        there = [one for one in range(6 * SHELF) if one not in without]
        for place in range(4 * SHELF):
            found = [one for one in there if one >= place][:6]
            scores = [0.9 - 0.03 * (one - place) for one in found]
            world.probe.answers[f"q{place}"] = answered(hits(*(f"doc-{one}" for one in found), scores=scores))
        ended = [world.run().id for _ in range(count)]
        with sqlite_store.read() as connection:
            causes = diagnoses.run_causes_of(connection, ended)
        return [(cause["kind"], cause["since_run"]) for _, cause in sorted(causes.items())]

    assert carry_out(LEARNED) == []
    assert carry_out(2, without=range(12)) == [("missing", LEARNED + 1)] * 2
    exchanged = LEARNED + 3
    first, *later = carry_out(3, without=range(20, 27))
    assert later == [("missing", exchanged)] * 2, first
