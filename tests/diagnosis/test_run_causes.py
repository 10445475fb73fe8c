"""A cause that the whole run shares is recognised from what was retrieved before and now, and said where it helps."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from app.alerts.domain.summaries import AlertFacts, ChangedCanaries, alert_summary
from app.alerts.domain.views import SinceView
from app.alerts.service import transitions
from app.base.db.engine import Store
from app.base.values import Canary, Cause, Judgment, Outcome, Ranking, RuleKind, RunCauseKind, replace
from app.diagnosis import store as diagnosis_rows
from app.diagnosis.domain import run_causes as run_cause_search
from app.diagnosis.domain.canary_causes import classify
from app.diagnosis.domain.cases import Case
from app.diagnosis.domain.reanchors import is_back
from app.diagnosis.domain.run_causes import RankingPair, RunCause, find_run_cause, read_run_cause, texts_explain_more
from app.diagnosis.service import diagnoses, reanchoring
from app.diagnosis.views import ReanchorState
from app.retrievers.domain.retrievers import Scale
from app.scoring.text_changes import ChangedTexts
from tests.support.fakes import answered, hits
from tests.support.library import API, QUERIES, TEXTS, Diagnosed, Library, shelf
from tests.support.pages_service import Site
from tests.support.world import World, canary, page

# --- lost texts, and what answers show -----------------------------------------------------------------------


def test_a_text_that_one_canary_lost_does_not_explain_the_chunks_that_ten_lost() -> None:
    """A stale copy has some older texts and lacks many documents."""
    missing = RunCause(kind=RunCauseKind.MISSING, since_run=2, before_run=1, affected=86, shape="chunks missing")
    of_texts = RunCause(kind=RunCauseKind.TEXTS_CHANGED, since_run=2, before_run=1, affected=1)
    a_run_later = ChangedTexts(counts={})
    assert not texts_explain_more(of_texts, missing, a_run_later, named=10)
    assert texts_explain_more(replace(of_texts, affected=5), missing, a_run_later, named=10)
    assert texts_explain_more(of_texts, missing, a_run_later, named=0)
    assert not texts_explain_more(replace(of_texts, affected=0), missing, a_run_later, named=0)


# --- recognised from two rankings a canary -------------------------------------------------------------------


def ranking(*hits: tuple[str, str], document: str | None = None, score: float = 0.9) -> Ranking:
    """Make a ranking of (id, text)."""
    return Ranking(
        ids=tuple(name for name, _ in hits),
        documents=(document,) * len(hits),
        texts=tuple(text for _, text in hits),
        scores=tuple(score - 0.01 * rank for rank in range(len(hits))),
        returned=len(hits),
    )


def joined(one: Ranking, other: Ranking) -> Ranking:
    """Put the hits of one ranking after those of another."""
    return Ranking(
        ids=one.ids + other.ids,
        documents=one.documents + other.documents,
        texts=one.texts + other.texts,
        scores=(*one.scores, *other.scores),
        returned=one.returned + other.returned,
    )


def words(number: int, count: int = 60, start: int = 0) -> str:
    """Write a text that shares no three words with that of another number."""
    return " ".join(f"w{number}x{place}" for place in range(start, start + count))


def pairs(now: Any, *, judgment: Any = None, count: int = 10) -> list[RankingPair]:
    """Make canaries that each found a chunk `old-N` before; `now` gives the ranking of each number."""
    judgment = judgment or (lambda number: Judgment(id=f"old-{number}"))
    return [
        RankingPair(
            canary=Canary(key=f"q{number}", query="?", judgments=(judgment(number),)),
            before=ranking((f"old-{number}", words(number)), (f"old-{number}b", words(number + 100)), document="a.md"),
            now=now(number),
        )
        for number in range(count)
    ]


def found(some: list[RankingPair]) -> RunCause | None:
    """Recognise what happened, as a run does."""
    return find_run_cause(some, k=5, scale=Scale.COSINE, since_run=8, before_run=7)


def halves(number: int) -> Ranking:
    """Cut the old chunk in two under new ids."""
    return ranking((f"n-{number}-0", words(number, 30)), (f"n-{number}-1", words(number, 30, 30)), document="a.md")


def test_chunks_cut_anew_under_other_ids_are_recognised_by_their_texts() -> None:
    cause = found(pairs(halves))
    assert cause is not None
    assert (cause.kind, cause.affected, cause.unseen_ids) == (RunCauseKind.RECHUNKED, 10, 1.0)
    assert (cause.recall_by_id_before, cause.recall_by_id_now) == (1.0, 0.0)
    assert (cause.recall_by_passage_before, cause.recall_by_passage_now) == (1.0, 1.0)
    assert cause.phrase == "chunks re-cut under other ids (recall by id 1.00 -> 0.00, by passage 1.00 -> 1.00)"
    assert cause.reason.startswith("Chunks re-cut under other ids since run 8: recall by id 1.00 -> 0.00")
    assert "100 % of the retrieved ids were not there in run 7" in cause.reason
    assert read_run_cause(json.loads(json.dumps(cause.as_json))) == cause


@pytest.mark.parametrize(
    ("by_id", "by_passage", "figures"),
    [
        ((0.21, 0.2101), (0.214, 0.21), " (60 % of the retrieved ids were not there in run 7)"),
        ((0.21, 0.2101), None, " (60 % of the retrieved ids were not there in run 7)"),
        ((0.21, 0.2101), (0.5, 0.3), " (recall by passage 0.50 -> 0.30)"),
        ((0.21, 0.0), (0.5, 0.5), " (recall by id 0.21 -> 0.00, by passage 0.50 -> 0.50)"),
    ],
)
def test_recall_that_did_not_move_stands_only_beside_one_that_did(
    by_id: tuple[float, float], by_passage: tuple[float, float] | None, figures: str
) -> None:
    cause = RunCause(
        kind=RunCauseKind.RECHUNKED,
        since_run=8,
        before_run=7,
        recall_by_id_before=by_id[0],
        recall_by_id_now=by_id[1],
        recall_by_passage_before=by_passage and by_passage[0],
        recall_by_passage_now=by_passage and by_passage[1],
        unseen_ids=0.6,
    )
    assert cause.phrase == f"chunks re-cut under other ids{figures}"
    changed = ChangedCanaries(count=2, of=9, shared_cause=cause.phrase)
    since: SinceView = {
        "run_id": "8",
        "index_version": None,
        "index_version_before": None,
        "runs_after": None,
        "text": "since run 8",
    }
    facts = AlertFacts(check="docs", kind=RuleKind.REGRESSION, since=since, changed=changed)
    assert alert_summary(facts) == f"docs: 2 of 9 canaries degraded since run 8: chunks re-cut under other ids{figures}"


def test_where_the_new_cut_splits_every_expected_passage_it_is_recognised_all_the_same() -> None:
    expected = pairs(halves, judgment=lambda number: Judgment(id=f"old-{number}", text=words(number, 20, 20)))
    cause = found(expected)
    assert cause is not None
    assert (cause.kind, cause.recall_by_passage_now, cause.split) == (RunCauseKind.RECHUNKED, 0.0, 10)
    assert "10 expected passages are split over several chunks" in cause.reason


def test_the_same_chunks_under_other_ids_are_re_indexed() -> None:
    cause = found(pairs(lambda number: ranking((f"n-{number}", words(number)), document="a.md")))
    assert cause is not None
    assert cause.kind is RunCauseKind.REINDEXED


@pytest.mark.parametrize("names", ["document", "id"])
def test_the_same_chunks_of_documents_by_other_names_are_renamed_documents(names: str) -> None:
    judged = {"document": lambda _: Judgment(document="a.md"), "id": lambda number: Judgment(id=f"old-{number}")}[names]
    prefix = "old" if names == "document" else "b.md"

    def now(number: int) -> Ranking:
        hits = (f"{prefix}-{number}", words(number)), (f"{prefix}-{number}b", words(number + 100))
        return ranking(*hits, document="b.md")

    cause = found(pairs(now, judgment=judged))
    assert cause is not None
    assert cause.kind is RunCauseKind.RENAMED_DOCUMENTS


def test_a_new_cut_is_recognised_though_judgments_by_document_are_all_found() -> None:
    cause = found(pairs(halves, judgment=lambda _: Judgment(document="a.md")))
    assert cause is not None
    assert (cause.kind, cause.affected) == (RunCauseKind.RECHUNKED, 0)
    assert cause.phrase == "chunks re-cut under other ids (100 % of the retrieved ids were not there in run 7)"
    assert not cause.is_harmful


def test_a_new_cut_under_the_old_ids_is_recognised() -> None:
    def now(number: int) -> Ranking:
        return ranking((f"old-{number}", words(number, 40)), (f"old-{number}b", words(number, 20, 40)))

    cause = found(pairs(now))
    assert cause is not None
    assert cause.phrase.startswith("chunks re-cut under their old ids")


def test_a_fifth_of_the_documents_cut_anew_is_recognised() -> None:
    def now(number: int) -> Ranking:
        return halves(number) if number < 4 else pairs(halves, count=20)[number].before

    cause = found(pairs(now, count=20))
    assert cause is not None
    assert (cause.kind, cause.affected, cause.recall_by_id_now) == (RunCauseKind.RECHUNKED, 4, 0.8)


def test_pieces_of_which_few_come_back_are_told_where_no_old_id_is_left() -> None:
    def some_pieces(number: int) -> Ranking:
        return (
            halves(number) if number < 3 else ranking(*((f"n-{number}-{place}", words(500 + number)) for place in "ab"))
        )

    def some_old(number: int) -> Ranking:
        return halves(number) if number < 3 else ranking((f"old-{number}b", words(number + 100)))

    kinds = [cause and cause.kind for now in (some_pieces, some_old) for cause in (found(pairs(now)),)]
    assert kinds[0] is RunCauseKind.RECHUNKED
    assert kinds[1] is not RunCauseKind.RECHUNKED


def test_lost_chunks_another_order_and_copies_are_not_taken_for_a_new_cut() -> None:
    def lost(number: int) -> Ranking:
        return ranking((f"old-{number}b", words(number + 100)), (f"else-{number}", words(number + 200)))

    def shuffled(number: int) -> Ranking:
        return ranking(*((f"else-{number}-{rank}", words(1_000 + 10 * number + rank)) for rank in range(5)))

    def copied(number: int) -> Ranking:
        return ranking(*((f"copy-{number}-{rank}", words(number)) for rank in range(5)))

    def nearly_copied(number: int) -> Ranking:
        def without(place: int) -> str:
            return " ".join(word for at, word in enumerate(words(number).split()) if at % 9 != place)

        return ranking(*((f"copy-{number}-{place}", without(place)) for place in range(5)))

    kinds = [cause and cause.kind for now in (lost, shuffled, copied, nearly_copied) for cause in (found(pairs(now)),)]
    assert kinds == [None, *[RunCauseKind.OTHER_VECTORS] * 3]


@pytest.mark.parametrize("seed", range(30))
def test_canaries_that_lost_nothing_are_left_out_of_the_search_without_another_result(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    renamed, shuffled = random.random(2) * (0.6, 1)

    def now(number: int) -> Ranking:
        hits = [(f"old-{number}", words(number)), (f"other-{number}", words(100 + number))]
        if random.random() < renamed:
            hits[0] = f"new-{number}", words(number)
        return ranking(*(hits[::-1] if random.random() < shuffled else hits), score=float(random.random()))

    some = [
        replace(one, before=ranking((f"old-{place}", words(place)), (f"other-{place}", words(100 + place))))
        for place, one in enumerate(pairs(now, count=20))
    ]
    cause = found(some)
    assert any(map(run_cause_search._is_settled, some))
    monkeypatch.setattr(run_cause_search, "_is_settled", lambda _: False)
    assert found(some) == cause


def test_other_scores_for_the_same_chunks_are_recognised_where_half_of_the_canaries_show_them() -> None:
    def now(number: int, *, share: int) -> Ranking:
        before = pairs(halves, count=20)[number].before
        return before if number >= share else ranking(*zip(before.ids, before.texts, strict=True), score=0.5)  # type: ignore[arg-type] # pairs of id and text

    cause = found(pairs(lambda number: now(number, share=12), count=20))
    assert cause is not None
    assert (cause.kind, cause.affected) == (RunCauseKind.SCORES_CHANGED, 12)
    assert "Scores of the same chunks changed since run 8: by 45 % in the median" in cause.reason
    assert found(pairs(lambda number: now(number, share=9), count=20)) is None


# --- in runs, alerts and pages -------------------------------------------------------------------------------


def test_another_order_counts_canaries_of_which_a_second_expected_chunk_ranks_lower() -> None:
    def of(number: int, *places: int) -> Ranking:
        return ranking(*((f"c{number}-{place}", words(10 * number + place, 20)) for place in places))

    def canary(number: int) -> Canary:
        wrong = Judgment(id=f"c{number}-3", grade=0)
        return Canary(
            key=f"q{number}", query="?", judgments=(Judgment(id=f"c{number}-0"), Judgment(id=f"c{number}-1"), wrong)
        )

    orders = {0: (1, 0, 3, 2, 4), 1: (0, 2, 4, 3, 1), 2: (2, 0, 1, 4, 3), 3: (0, 3, 4, 2)}
    some = [
        RankingPair(canary=canary(number), before=of(number, 0, 1, 2, 3, 4), now=of(number, *orders[number % 4]))
        for number in range(40)
    ]
    cause = found(some)
    assert cause is not None
    assert cause.kind is RunCauseKind.RANKING_CHANGED
    told = "the first expected chunk ranks better for 0 canaries, lower for 10, and 0 lost it"
    assert f"{told}; another one ranks lower, or is gone, for 30" in cause.reason


def recut(chunks: Mapping[str, str]) -> dict[str, str]:
    """Cut every chunk in two, under ids never seen before."""
    cut: dict[str, str] = {}
    for name, text in chunks.items():
        some = text.split()
        for part, piece in enumerate((some[: len(some) // 2], some[len(some) // 2 :])):
            cut[f"v2-{name}-{part}"] = " ".join(piece)
    return cut


def test_a_new_cut_is_said_by_the_run_and_by_the_first_line_of_its_alert(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    well = setting.run()
    setting.library.chunks = recut(TEXTS)
    bad = setting.run()
    reasons = setting.world.shown(bad)["reasons"]
    [told] = [reason for reason in reasons if "re-cut" in reason]
    assert told.startswith(f"Chunks re-cut under other ids since run {bad.id}: recall by id 1.00 -> 0.00")
    assert f"were not there in run {well.id}" in told
    assert setting.world.deliver() is not None
    data = json.loads(setting.world.send.sent[-1][1].body)["data"]
    assert "chunks re-cut under other ids (recall by id 1.00 -> 0.00" in data["summary"]
    assert data["fleet"]["cause"]["kind"] == "rechunked"


def test_it_is_said_as_long_as_it_lasts_and_no_longer(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    well = setting.run()
    setting.library.chunks = recut(TEXTS)
    first = setting.run()
    second = setting.run()
    del setting.library.chunks["v2-export-1"]
    third = setting.run()
    setting.library.chunks = dict(TEXTS)
    healed = setting.run()
    with sqlite_store.read() as connection:
        stored = diagnosis_rows.run_causes_of(connection, [run.id for run in (well, first, second, third, healed)])
    assert {run: (one["since_run"], one["before_run"]) for run, one in stored.items()} == {
        run.id: (first.id, well.id) for run in (first, second, third)
    }
    assert not any("re-cut" in reason for reason in setting.world.shown(healed)["reasons"])


def test_a_run_that_is_unknown_in_between_does_not_end_it(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    setting.library.dead = Outcome.UNREACHABLE
    setting.run()
    setting.library.dead, setting.library.chunks = None, recut(TEXTS)
    first = setting.run()
    setting.library.dead = Outcome.UNREACHABLE
    setting.run()
    setting.library.dead = None
    again = setting.run()
    assert any(f"since run {first.id}" in reason for reason in setting.world.shown(again)["reasons"])


def test_canaries_that_ask_something_else_make_no_cause_of_the_run(sqlite_store: Store) -> None:
    """Their answers are others, and the others' are as before: as if two replicas differed."""
    world = World(store=sqlite_store)
    keys = [f"c{number:02}" for number in range(20)]
    world.apply(page([canary(key) for key in keys]))
    pool = [f"chunk-{number}" for number in range(400)]
    world.probe.otherwise = lambda ask: answered(
        hits(f"doc-{ask.query}", *(pool[(zlib.crc32(f"{ask.query} {rank}".encode())) % 400] for rank in range(9)))
    )
    for _ in range(3):
        world.run()
    edited = [canary(key, query=f"another {key}", expected_chunks=[f"doc-{key}"]) for key in keys[:5]]
    world.apply(page([*edited, *(canary(key) for key in keys[5:])]))
    for _ in range(2):
        assert not any("replicas" in reason for reason in world.shown(world.run())["reasons"])


def test_it_ends_once_people_accept_things_as_they_are(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    setting.library.chunks = recut(TEXTS)
    setting.run()
    transitions.accept_baseline(sqlite_store, "watch", by="somebody", note=None, now=setting.world.clock())
    after = setting.run()
    assert not any("re-cut" in reason for reason in setting.world.shown(after)["reasons"])


# --- what follows for single canaries ------------------------------------------------------------------------


def test_every_affected_canary_gets_a_proposal_without_a_question_and_all_are_accepted_at_once(store: Store) -> None:
    """All keep finding their passages, so none is degraded: what is lost is lost by name alone."""
    expected = [{**one, "expected_chunks": [{"id": one["key"], "text": TEXTS[one["key"]]}]} for one in shelf()]
    setting = Diagnosed.of(store, expected, owner=API)
    setting.run()
    setting.library.chunks = {f"v2-{name}": text for name, text in TEXTS.items()}
    moved = setting.run()
    assert setting.library.questions() == []
    assert setting.world.shown(moved)["verdict"] == "healthy"
    waiting = reanchoring.list_all(store, "watch", state=ReanchorState.PROPOSED, limit=100)
    assert {one["key"]: [new["id"] for new in one["proposals"]] for one in waiting} == {
        name: [f"v2-{name}"] for name in TEXTS
    }
    reanchoring.decide(store, "watch", accept=None, by="somebody", now=setting.world.clock())
    after = setting.run()
    assert setting.world.shown(after)["measures"]["R_id@10"] == 1.0
    assert not any("under other ids" in reason for reason in setting.world.shown(after)["reasons"])


def test_a_few_canaries_are_looked_at_a_run_and_all_in_the_end(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnoses, "EXAMINED", 3)
    expected = [{**one, "expected_chunks": [{"id": one["key"], "text": TEXTS[one["key"]]}]} for one in shelf()]
    setting = Diagnosed.of(sqlite_store, expected, owner=API)
    setting.run()
    setting.library.chunks = {f"v2-{name}": text for name, text in TEXTS.items()}
    proposed = []
    for _ in range(3 * len(TEXTS)):
        setting.run()
        proposed.append(len(reanchoring.list_all(sqlite_store, "watch", state=ReanchorState.PROPOSED, limit=100)))
    assert proposed[0] <= 3
    assert proposed[-1] == len(TEXTS)


def test_a_passage_that_the_new_cut_splits_is_told_as_re_cut_with_both_parts_proposed(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    setting.library.chunks = recut(TEXTS)
    setting.run()
    assert {key: setting.why(key).cause for key in TEXTS} == dict.fromkeys(TEXTS, "rechunked")
    waiting = reanchoring.list_all(sqlite_store, "watch", state=ReanchorState.PROPOSED, limit=100)
    assert {one["key"] for one in waiting} == set(TEXTS)
    split = {one["key"]: len(one["proposals"]) for one in waiting}
    assert max(split.values()) == 2


@pytest.mark.parametrize("page", [1, 1_000])
def test_proposals_are_outdated_once_the_old_chunks_are_back_however_many_there_are(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(reanchoring, "_MOST", page)
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    setting.library.chunks = recut(TEXTS)
    setting.run()
    setting.library.chunks = dict(TEXTS)
    setting.run()
    states = {one["state"] for one in reanchoring.list_all(sqlite_store, "watch", state=None, limit=100)}
    assert states == {"outdated"}
    shown = Site(world=setting.world).page("/checks/watch/reanchors").text
    assert "nobody: the old chunk is back, or the canary was changed, " in shown
    assert "its file" not in shown, "no file was changed"
    assert "The index still holds these" not in shown, "nothing is proposed any more"


def test_a_proposal_made_after_the_old_chunk_came_back_is_outdated_at_once(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    setting.library.chunks = recut(TEXTS)
    cut = setting.run(diagnosed=False)
    setting.library.chunks = dict(TEXTS)
    setting.run()
    setting.diagnose(cut)
    states = {one["state"] for one in reanchoring.list_all(sqlite_store, "watch", state=None, limit=100)}
    assert states == {"outdated"}


@pytest.mark.parametrize(
    ("old", "gone", "back"),
    [
        (Judgment(document="a.md"), ("b.md", words(0)), ("a.md", words(9))),
        (Judgment(document="a.md", text=words(0)), ("b.md", words(0)), ("a.md", words(9))),
        (Judgment(text=words(0)), ("a.md", words(0, 20)), ("b.md", words(0))),
        (Judgment(id="n-7"), ("a.md", words(9)), ("b.md", words(0))),
    ],
)
def test_what_a_proposal_would_replace_is_back_by_its_chunk_its_document_or_its_text_at_any_rank(
    old: Judgment, gone: tuple[str, str], back: tuple[str, str]
) -> None:
    above = ranking(*((f"n-{rank}", words(100 + rank)) for rank in range(7)), document="c.md")
    for (document, text), expected in ((gone, False), (back, True)):
        last = ranking(("n-7", text), document=document, score=0.1)
        assert is_back(old, words(0), joined(above, last)) is expected


@dataclass(kw_only=True)
class Documents(Library):
    """A library that tells of which document a chunk is, the part of its id before the `#`."""

    def search(self, query: str, k: int) -> Ranking:
        """Rank as the library does."""
        found = super().search(query, k)
        return replace(found, documents=tuple(name.partition("#")[0] for name in found.ids))


def test_a_proposal_by_document_is_outdated_once_the_document_is_back_below_the_top_k(sqlite_store: Store) -> None:
    copies = {f"copy{place}#1": f"{QUERIES['refunds']} {words(place)}" for place in range(5)}
    judged = [{**one, "expected_chunks": [{"document": one["key"]}]} for one in shelf()]
    setting = Diagnosed.of(sqlite_store, judged)
    setting.library = Documents(chunks={f"{name}#1": text for name, text in TEXTS.items()})
    setting.run()
    setting.library.chunks = {f"new-{name}#1": text for name, text in TEXTS.items()}
    setting.run()
    waiting = reanchoring.list_all(sqlite_store, "watch", state=ReanchorState.PROPOSED, limit=100)
    assert {one["key"] for one in waiting} == set(TEXTS)
    setting.library.chunks = {f"{name}#1": text for name, text in TEXTS.items()} | copies
    last = setting.run()
    hits = setting.world.results(last)["refunds"]["ranking"]
    assert [hit["document"] for hit in hits].index("refunds") >= 3
    states = {one["state"] for one in reanchoring.list_all(sqlite_store, "watch", state=None, limit=100)}
    assert states == {"outdated"}


def test_a_few_common_words_or_a_document_that_stood_beside_it_are_no_new_home() -> None:
    """A three-word chunk of another document was proposed for a whole abstract that was cut anew."""
    old = Judgment(document="4")
    text = f"a flat plate {words(0)}"
    before = joined(
        ranking(("4#1", text), document="4"), ranking(("62#1", f"{words(7)} {words(0, 20)}"), document="62")
    )
    few = ranking(("62#9", "a flat plate ."), document="70")
    beside = ranking(("62#9", words(0, 20)), document="62")
    piece = ranking(("n#1", words(0, 20)), document="new")
    homes = {}
    for name, now in {"few": few, "beside": beside, "piece": piece}.items():
        canary = Canary(key="q", query="?", judgments=(old,))
        case = Case(canary=canary, k=5, fetch_k=10, now=now, healthy=before, ever_passed=True, renamed=True)
        homes[name] = [one.proposals for one in classify(case, (), ()).reanchors]
    assert homes == {"few": [], "beside": [], "piece": [(Judgment(document="new"),)]}


def test_a_changed_embedder_overrules_causes_of_single_canaries_and_a_new_cut_does_not() -> None:
    embedder = RunCause(kind=RunCauseKind.EMBEDDER_CHANGED, since_run=8, before_run=7)
    overruled = {cause for cause in Cause if embedder.overrules(cause)}
    assert {Cause.MISSING, Cause.RECHUNKED, Cause.VOCABULARY_MISMATCH} <= overruled
    assert overruled.isdisjoint({Cause.SCORE_DRIFT, Cause.RETRIEVER_ERROR})
    cut = RunCause(kind=RunCauseKind.RECHUNKED, since_run=8, before_run=7)
    assert not any(map(cut.overrules, Cause))


def test_hits_that_stand_lower_refute_that_they_are_left_out() -> None:
    fell, gone = (Cause.OUTRANKED, 15), (Cause.UNSTABLE, None)
    for kind in (RunCauseKind.SEARCH_MISSES, RunCauseKind.LEFT_OUT):
        cause = RunCause(kind=kind, since_run=8, before_run=7, shape="hits are left out")
        assert cause.is_refuted([fell, fell, gone])
        assert not cause.is_refuted([fell, gone])
        assert not cause.is_refuted([(Cause.OUTRANKED, None)])
        assert not cause.is_refuted([])
        assert not cause.overrules(Cause.OUTRANKED)
        assert cause.overrules(Cause.SCORE_DRIFT)
    missing = RunCause(kind=RunCauseKind.MISSING, since_run=8, before_run=7, shape="chunks missing")
    assert not missing.is_refuted([fell, fell])


def test_a_document_that_the_new_cut_ranks_lower_is_told_as_re_cut() -> None:
    canary = Canary(key="q", query="?", judgments=(Judgment(document="a.md"),))
    before = ranking(("old-0", words(0)), document="a.md")
    others = ranking(*((f"n-{rank}", words(100 + rank)) for rank in range(8)), document="b.md")
    last = ranking(("n-9", words(0, 30)), document="a.md", score=0.1)
    now = joined(others, last)
    case = Case(canary=canary, k=5, fetch_k=10, now=now, healthy=before, ever_passed=True, renamed=True)
    found = classify(case, (), ())
    assert (found.cause, found.reanchors) == (Cause.RECHUNKED, ())
    assert found.reason == "The documents were re-cut, and the new cut ranks lower: it fell from rank 1 to rank 9"
    assert classify(replace(case, renamed=False), (), ()).cause is Cause.OUTRANKED


def test_what_was_diagnosed_from_rows_is_not_diagnosed_again(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    setting.library.chunks = recut(TEXTS)
    setting.run()
    before = setting.world.count("diagnoses", "reanchors")
    setting.run()
    assert setting.world.count("diagnoses", "reanchors") == before
