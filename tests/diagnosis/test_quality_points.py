"""The points of the quality checklist, each by itself: what is good, what needs a look, and what is not known."""

import random
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from app.base.values import Canary, Category, EmbedderChange, Judgment, Outcome, Ranking, replace
from app.diagnosis.domain.quality import (
    Answered,
    DistinctChunk,
    chunks_of,
    embedding_quality,
    precision,
    recall,
    separation,
    slow_drift,
    spread_over,
    suite_power,
    theil_sen,
)
from app.diagnosis.domain.quality_texts import (
    chunk_boundaries,
    chunk_quality,
    folded_words,
    nearest_copies,
    vocabulary,
)
from app.diagnosis.views import Mark
from app.retrievers.domain.probes import StoredFinding, StoredPair
from app.retrievers.domain.retrievers import Scale, Scorer, ScorerKind
from app.scoring.rankings import match, prepare
from app.scoring.suites import power_of
from tests.support.fakes import hits

SENTENCES = [
    "Invoices are sent on the first day of each month to the address of the account owner.",
    "Nobody may open the archive room without a second person from the records office.",
    "Backups run every night at two and are kept for thirty days in another region.",
    "To rotate a key, create a new one, deploy it, and then revoke the one before.",
    "The cafeteria opens at eleven and closes when the last guest has finished lunch.",
    "A pull request needs two approvals before anybody may merge it into the main branch.",
    "Travel costs are paid back within ten working days after the form was signed.",
    "Sensors report their temperature each minute and are calibrated once every year.",
    "New colleagues receive a laptop, a badge and a list of people worth having coffee with.",
    "When the pressure falls below two bar the pump stops and an operator is called.",
]
SIMILARITY = Scorer(kind=ScorerKind.SCORE, scale=Scale.SIMILARITY)


def _chunks(*texts: str | None) -> list[DistinctChunk]:
    return [DistinctChunk(id=f"c{place}", document=None, text=text) for place, text in enumerate(texts)]


def _answered(
    key: str, ranking: Ranking, *, expected: Sequence[Judgment] = (Judgment(id="right"),), query: str = "?"
) -> Answered:
    canary = Canary(key=key, query=query, judgments=tuple(expected))
    return Answered(canary=canary, ranking=ranking, match=match(prepare(canary.judgments), ranking))


# --- chunks --------------------------------------------------------------------------------------------------


def test_whole_sentences_are_good_chunks() -> None:
    section = chunk_quality(_chunks(*SENTENCES))
    assert section["verdict"] is Mark.GOOD
    assert section["advice"] is None
    assert section["numbers"]["looked_at"] == len(SENTENCES)


def test_chunks_without_texts_are_unknown_and_not_good() -> None:
    assert chunk_quality(_chunks(None, None))["verdict"] is Mark.UNKNOWN
    assert chunk_quality([])["verdict"] is Mark.UNKNOWN


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        ([" \n- "], "empty"),
        ([one[9:] for one in SENTENCES[:4]], "starting_inside_a_sentence"),
        ([one[:-9] for one in SENTENCES] * 2, "ending_inside_a_sentence"),
        (["Word after word, on and on. " * 60 + "The end."], "over_long"),
        ([SENTENCES[0].replace("Invoices", "All invoices")], "near_copies"),
        (["<table><tr><td>1</td><td>2</td></tr></table><div class='x'></div> ok"], "markup_or_boilerplate"),
    ],
)
def test_bad_chunks_are_counted_named_and_advised_on(bad: list[str], name: str) -> None:
    chunks = _chunks(*SENTENCES, *[f"{text}" for text in dict.fromkeys(bad)])
    section = chunk_quality(chunks)
    assert section["verdict"] is Mark.REVIEW
    assert section["numbers"][name] in {len(dict.fromkeys(bad)), len(dict.fromkeys(bad)) + 1}, "a copy is one of two"
    assert section["advice"] is not None
    named = {example["chunk"] for example in section["examples"]}
    assert named & {chunk.id for chunk in chunks[len(SENTENCES) :]}


def test_lines_of_many_chunks_are_boilerplate() -> None:
    footer = "\nCopyright 2024 Example Corporation, all rights reserved\nTerms of service and privacy statement"
    section = chunk_quality(_chunks(*[f"Page {place}.{footer}" for place in range(6)], *SENTENCES))
    assert section["numbers"]["markup_or_boilerplate"] == 6
    told = next(example["told"] for example in section["examples"] if "many other chunks" in example["told"])
    assert told.endswith("of it stands in many other chunks")


def test_a_corpus_without_capitals_is_not_called_cut() -> None:
    assert chunk_quality(_chunks(*[one.lower() for one in SENTENCES]))["numbers"]["starting_inside_a_sentence"] == 0


def test_names_that_begin_in_lower_case_are_no_cut() -> None:
    chunks = _chunks(*SENTENCES, "iPhone users tap the gear first.", "pH values above nine burn.", "e-mail is kept.")
    assert chunk_quality(chunks)["numbers"]["starting_inside_a_sentence"] == 0


def test_hostile_texts_are_looked_at_to_their_end() -> None:
    hostile = ["<" * 20_000, "](" * 10_000, "&" * 20_000, "a" * 20_000, "\u4e2d" * 20_000, "https://" * 2_500]
    assert chunk_quality(_chunks(*hostile * 3))["numbers"]["looked_at"] == 18  # a blow-up would take hours


def test_examples_hold_the_beginning_of_a_text_and_no_more() -> None:
    section = chunk_quality(_chunks(*SENTENCES, "x " * 5_000))
    assert max(len(example["text"] or "") for example in section["examples"]) == 160


# --- copies --------------------------------------------------------------------------------------------------


def _sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)  # noqa: S311 - texts, not secrets
    words = [f"w{rank}" for rank in range(5_000)]
    weights = [1 / (rank + 5) for rank in range(5_000)]
    return [" ".join(draw.choices(words, weights=weights, k=draw.randint(20, 120))) for _ in range(count)]


def test_near_copies_are_found_like_by_comparing_all_with_all() -> None:
    draw = random.Random(7)  # noqa: S311 - texts, not secrets
    texts = _sentences(120, 1)
    for original in texts[:60]:
        words = original.split()
        for _ in range(draw.choice([1, 2, 6])):
            changed = words[: int(len(words) * draw.uniform(0.4, 1))] if draw.random() < 0.4 else list(words)
            for _ in range(draw.randint(0, 5)):
                changed[draw.randrange(len(changed))] = "changed"
            texts.append(" ".join(changed))
    draw.shuffle(texts)
    sets = [set(zip(w, w[1:], w[2:], strict=False)) for w in map(folded_words, texts)]
    expected = {
        place
        for place, one in enumerate(sets)
        if any(len(one & other) > 0.7 * min(len(one), len(other)) for at, other in enumerate(sets) if at != place)
    }
    found = nearest_copies(texts)
    assert set(found) <= expected
    assert len(found) >= 0.99 * len(expected)
    for place, (other, common) in found.items():
        assert common == pytest.approx(len(sets[place] & sets[other]) / min(len(sets[place]), len(sets[other])))


def test_equal_texts_of_a_word_are_copies_and_different_ones_are_not() -> None:
    assert nearest_copies(["Yes.", "No.", "yes!", ""]) == {0: (2, 1.0), 2: (0, 1.0)}


def test_texts_without_spaces_between_words_have_copies_too() -> None:
    text = "数据保留三十天之后会被自动删除除非管理员延长期限"
    assert set(nearest_copies([text, text + "请注意", "完全不同的另一段文字没有任何重复的内容在里面"])) == {0, 1}


# --- embeddings ----------------------------------------------------------------------------------------------


def _finding(
    similar: float,
    dissimilar: float,
    *,
    kind: EmbedderChange | None = EmbedderChange.SAME,
    outcome: Outcome = Outcome.OK,
) -> StoredFinding:
    pairs: list[StoredPair] = [
        {"key": "close", "similar": True, "cosine": similar, "reference": similar, "agreement": 1.0},
        {"key": "far", "similar": False, "cosine": dissimilar, "reference": dissimilar, "agreement": 1.0},
    ]
    return {
        "outcome": outcome,
        "http_status": None,
        "kind": kind,
        "reason": "",
        "dimensions": None,
        "pairs": pairs if outcome is Outcome.OK else [],
    }


@pytest.mark.parametrize(
    ("finding", "mark"),
    [
        (None, Mark.UNKNOWN),
        (_finding(0.9, 0.1, outcome=Outcome.TIMEOUT, kind=None), Mark.UNKNOWN),
        (_finding(0.9, 0.1), Mark.GOOD),
        (_finding(0.9, 0.1, kind=EmbedderChange.DRIFTED), Mark.GOOD),
        (_finding(0.9, 0.1, kind=EmbedderChange.SWAPPED), Mark.REVIEW),
        (_finding(0.9, 0.85), Mark.REVIEW),
        (_finding(0.5, 0.6), Mark.REVIEW),
    ],
)
def test_an_embedder_is_good_where_it_tells_pairs_apart(finding: StoredFinding | None, mark: Mark) -> None:
    section = embedding_quality(finding)
    assert section["verdict"] is mark
    assert (section["advice"] is not None) is (mark is Mark.REVIEW)


def test_pairs_an_embedder_confuses_are_named() -> None:
    (example,) = embedding_quality(_finding(0.5, 0.6))["examples"]
    assert example["canary"] == "far"


# --- recall --------------------------------------------------------------------------------------------------


def _at(rank: int | None, key: str = "k") -> Answered:
    ids = [f"x{place}" for place in range(10)]
    if rank is not None:
        ids[rank - 1] = "right"
    return _answered(key, hits(*ids))


def test_recall_says_how_deep_what_is_expected_was_found() -> None:
    section = recall([_at(1), _at(3), _at(5), _at(9, "deep"), _at(None, "lost")], k=5, fetch_k=10)
    assert {name: section["numbers"][name] for name in section["numbers"] if "@" in name} == {
        "found@1": 0.2,
        "found@3": 0.4,
        "found@5": 0.6,
        "found@10": 0.8,
    }
    assert section["numbers"]["not_found"] == pytest.approx(0.2)
    assert section["verdict"] is Mark.REVIEW
    assert [example["canary"] for example in section["examples"]] == ["lost", "deep"]
    told = "3 of 5 questions find their document in the top 5, 1 below it, 1 not in the top 10"
    assert section["reason"] == told
    assert section["groups"] == {}


def test_recall_is_told_by_category_where_there_are_several() -> None:
    how = replace(_at(3).canary, category=Category.PROCEDURAL)
    section = recall([_at(1), _at(2), replace(_at(3), canary=how)], k=5, fetch_k=10)
    assert {name: numbers["canaries"] for name, numbers in section["groups"].items()} == {
        "procedural": 1,
        "simple_factual": 2,
    }


def test_recall_says_where_another_retriever_alone_brought_up_what_is_expected() -> None:
    section = recall([_at(1), _at(2)], k=5, fetch_k=10, judged_by=["bm25"])
    assert "brought up by bm25 alone: what only this retriever finds may never have been judged" in section["reason"]
    assert section["verdict"] is Mark.GOOD
    assert "brought up" not in recall([_at(1), _at(2)], k=5, fetch_k=10)["reason"]


def test_recall_advice_tells_what_is_deep_from_what_is_missing() -> None:
    deep = recall([_at(1), _at(8), _at(9)], k=5, fetch_k=10)
    missing = recall([_at(1), _at(None), _at(None)], k=5, fetch_k=10)
    assert "rerank" in str(deep["advice"])
    assert "in the index" in str(missing["advice"])


def test_recall_of_canaries_that_expect_nothing_is_unknown() -> None:
    negative = Canary(key="n", query="?", category=Category.NEGATIVE)
    ranking = hits("a")
    one = Answered(canary=negative, ranking=ranking, match=match(prepare(()), ranking))
    assert recall([one], k=5, fetch_k=10)["verdict"] is Mark.UNKNOWN


# --- precision -----------------------------------------------------------------------------------------------


def test_separation_is_the_share_of_pairs_in_the_right_order() -> None:
    draw = np.random.default_rng(3)
    good, bad = draw.integers(0, 9, 40) / 8, draw.integers(0, 7, 30) / 8
    pairs = [1.0 if g > b else 0.5 if g == b else 0.0 for g in good for b in bad]
    assert separation(good, bad) == pytest.approx(sum(pairs) / len(pairs))


def _scored(good: float, bad: float, count: int = 6) -> list[Answered]:
    return [_answered(f"k{place}", hits("right", "wrong", scores=[good, bad])) for place in range(count)]


def test_scores_that_tell_relevant_hits_apart_are_good() -> None:
    section = precision(_scored(0.9, 0.4), SIMILARITY)
    assert section["verdict"] is Mark.GOOD
    assert section["numbers"]["separation"] == 1
    assert section["numbers"]["overlap"] == 0


def test_scores_that_do_not_are_worth_a_look_and_the_worst_hits_are_named() -> None:
    section = precision([*_scored(0.5, 0.6), _answered("worst", hits("wrong", "right", scores=[0.9, 0.2]))], SIMILARITY)
    assert section["verdict"] is Mark.REVIEW
    assert section["examples"][0]["canary"] == "worst"
    assert section["examples"][0]["chunk"] == "wrong"


def test_distances_are_compared_on_their_scale() -> None:
    distance = Scorer(kind=ScorerKind.SCORE, scale=Scale.DISTANCE)
    assert precision(_scored(0.1, 3.0), distance)["numbers"]["separation"] == 1
    undeclared = precision(_scored(0.1, 3.0), Scorer(kind=ScorerKind.JUDGED))
    assert undeclared["numbers"]["separation"] == 0
    assert "distances" in str(undeclared["advice"])


def test_precision_without_scores_or_with_few_hits_is_unknown() -> None:
    scoreless = [_answered("k", hits("right", "wrong", scores=[None, None])) for _ in range(9)]
    assert precision(scoreless, SIMILARITY)["verdict"] is Mark.UNKNOWN
    assert precision(_scored(0.9, 0.4, count=4), SIMILARITY)["verdict"] is Mark.UNKNOWN


# --- vocabulary ----------------------------------------------------------------------------------------------


def test_a_missed_canary_without_common_words_is_named() -> None:
    expected = [Judgment(text="Credentials are renewed by the administrator each quarter.")]
    lost = _answered("strange", hits("x"), expected=expected, query="swap my password")
    found = _answered("plain", hits("right", texts={"right": "swap a password here"}), query="swap password")
    section = vocabulary([lost, found], chunks_of([lost, found]), k=5)
    assert section["verdict"] is Mark.REVIEW
    assert [example["canary"] for example in section["examples"]] == ["strange"]
    assert section["numbers"]["found_mean_overlap"] == 1
    assert section["numbers"]["missed_mean_overlap"] == 0


def test_expected_texts_by_id_are_known_where_another_canary_retrieved_them() -> None:
    lost = _answered("lost", hits("x"), query="swap password")
    other = _answered("other", hits("right", texts={"right": "swap a password"}), query="swap password")
    section = vocabulary([lost, other], chunks_of([lost, other]), k=5)
    assert section["verdict"] is Mark.GOOD
    assert section["numbers"]["missed_mean_overlap"] == 1


def test_missed_canaries_whose_texts_nobody_knows_are_unknown_and_not_good() -> None:
    lost, found = _answered("lost", hits("x")), _answered("f", hits("right", texts={"right": "q"}), query="q")
    assert vocabulary([lost, found], chunks_of([found]), k=5)["verdict"] is Mark.UNKNOWN
    assert vocabulary([lost], (), k=5)["verdict"] is Mark.UNKNOWN


# --- boundaries ----------------------------------------------------------------------------------------------

EVIDENCE = "A withdrawn request is kept for ninety days in the archive before an operator may delete it for good."


def _held(*texts: str, documents: Sequence[str | None] | None = None) -> Answered:
    ids = [f"c{place}" for place in range(len(texts))]
    ranking = hits(*ids, texts=dict(zip(ids, texts, strict=True)))
    if documents is not None:
        ranking = Ranking(
            ids=ranking.ids,
            documents=tuple(documents),
            texts=ranking.texts,
            scores=ranking.scores,
            returned=ranking.returned,
        )
    return _answered("cut", ranking, expected=[Judgment(text=EVIDENCE)])


@pytest.mark.parametrize("at", [40, 47, 60], ids=["at a space", "inside a word", "late"])
def test_evidence_cut_in_two_is_found_in_both_parts(at: int) -> None:
    section = chunk_boundaries([_held(f"{SENTENCES[0]} {EVIDENCE[:at]}", "other", f"{EVIDENCE[at:]} {SENTENCES[1]}")])
    assert section["verdict"] is Mark.REVIEW
    assert section["numbers"]["split"] == 1
    (example,) = section["examples"]
    assert (example["canary"], example["chunk"]) == ("cut", "c0")
    assert "rank 1" in example["told"]
    assert "rank 3" in example["told"]


def test_evidence_in_one_chunk_is_whole_however_it_is_formatted() -> None:
    section = chunk_boundaries([_held(EVIDENCE[:60], EVIDENCE.upper().replace(" ", "\n"))])
    assert section["verdict"] is Mark.GOOD
    assert section["numbers"]["held_whole"] == 1


def test_parts_in_two_documents_are_no_cut() -> None:
    parts = (EVIDENCE[:50], EVIDENCE[50:])
    assert chunk_boundaries([_held(*parts, documents=("a", "b"))])["numbers"]["split"] == 0
    assert chunk_boundaries([_held(*parts, documents=("a", "a"))])["numbers"]["split"] == 1


def test_boundaries_are_unknown_without_expected_texts_and_where_none_was_retrieved() -> None:
    assert chunk_boundaries([_answered("id", hits("right"))])["verdict"] is Mark.UNKNOWN
    assert chunk_boundaries([_held("nothing of the kind")])["verdict"] is Mark.UNKNOWN
    short = _answered("short", hits("a", texts={"a": "kept for"}), expected=[Judgment(text="kept for 30 days")])
    assert chunk_boundaries([short])["verdict"] is Mark.UNKNOWN


def test_parts_at_the_end_of_a_long_list_of_hits_are_put_together() -> None:
    words = EVIDENCE.split()
    noise = [" ".join(words[place % 12 : place % 12 + 3]) for place in range(60)]  # each holds a little
    section = chunk_boundaries([_held(*noise, EVIDENCE[:47], EVIDENCE[47:])])
    (example,) = section["examples"]
    assert "rank 61" in example["told"]
    assert "rank 62" in example["told"]


def test_long_texts_without_spaces_are_looked_at_in_little_memory() -> None:
    draw = random.Random(1)  # noqa: S311 - texts, not secrets
    texts = ["".join(map(chr, draw.choices(range(0x4E00, 0x9FFF), k=20_000))) for _ in range(15)]
    expected = [Judgment(text=f"{EVIDENCE} {place}") for place in range(20)]
    everything = [_answered(f"c{at}", hits("a", texts={"a": text}), expected=expected) for at, text in enumerate(texts)]
    chunks = [DistinctChunk(id="a", document=None, text=text) for text in texts]
    tracemalloc.start()
    try:
        chunk_boundaries(everything)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
        vocabulary(everything, chunks, k=5)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


# --- slow drift ----------------------------------------------------------------------------------------------


def test_the_slope_is_the_median_of_all_slopes_and_stands_wild_days() -> None:
    days = np.arange(20.0)
    means = 0.9 - 0.002 * days
    means[[3, 11, 17]] = 0.0, 1.0, 0.2
    found = theil_sen(days, means)
    assert found.slope == pytest.approx(-0.002, abs=3e-4)
    assert found.low <= found.slope <= found.high


def test_a_slow_decline_is_worth_a_look_with_its_numbers() -> None:
    section = slow_drift({"coverage": [(day, 0.95 - 0.002 * day) for day in range(31)]})
    assert section["verdict"] is Mark.REVIEW
    assert section["numbers"]["coverage now"] == pytest.approx(0.89)
    assert section["numbers"]["coverage 7 days ago"] == pytest.approx(0.904)
    assert section["numbers"]["coverage 30 days ago"] == pytest.approx(0.95)
    assert section["numbers"]["coverage slope per day"] == pytest.approx(-0.002)
    assert "pinned" in str(section["advice"])


def test_noise_about_a_level_is_no_drift() -> None:
    draw = np.random.default_rng(5)
    points = [(float(day), float(0.9 + draw.normal(0, 0.02))) for day in range(30)]
    assert slow_drift({"coverage": points})["verdict"] is Mark.GOOD


def test_a_trend_of_few_days_is_unknown() -> None:
    section = slow_drift({"coverage": [(day, 0.9 - 0.1 * day) for day in range(4)], "NDCG@10": []})
    assert section["verdict"] is Mark.UNKNOWN
    assert section["numbers"]["coverage 30 days ago"] is None
    assert section["numbers"]["NDCG@10 now"] is None


def test_a_change_of_the_suite_is_said_beside_the_trend() -> None:
    points = [(day, 0.95 - 0.01 * day) for day in range(10)]
    assert slow_drift({"coverage": points}, changed="the suite has changed")["reason"].endswith(
        "; but the suite has changed"
    )


# --- the suite, and samples ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "mark"), [(2, Mark.UNKNOWN), (20, Mark.REVIEW), (60, Mark.GOOD)])
def test_a_suite_is_good_where_it_sees_little_damage(count: int, mark: Mark) -> None:
    canaries = [Canary(key=str(place), query="?", judgments=(Judgment(id=f"x{place}"),)) for place in range(count)]
    assert suite_power(power_of(canaries))["verdict"] is mark


def test_topics_of_a_suite_are_counted_only_where_it_has_some() -> None:
    reasons = [
        suite_power(
            power_of(
                Canary(
                    key=f"c{place}", query="?", judgments=(Judgment(id=f"x{place}"),), tags=tags if place < 2 else ()
                )
                for place in range(20)
            )
        )["reason"]
        for tags in ((), ("billing",))
    ]
    damage = reasons[0]
    assert damage.endswith("if 15 % of the index were lost, a canary would fail in 95 of 100 cases")
    assert reasons[1] == f"{damage}; 1 of 1 topics have fewer than 3 canaries"


def test_samples_are_evenly_spaced_and_always_the_same() -> None:
    assert spread_over(3, 5) == [0, 1, 2]
    assert spread_over(10, 5) == [0, 2, 4, 6, 8]
    assert len(set(spread_over(10_007, 1_000))) == 1_000
