"""Why a canary degraded: each rule, their order, and what is said when little is known."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base.values import Answer, Canary, Category, Cause, Judgment, Outcome, Ranking, replace
from app.diagnosis.domain.canary_causes import classify
from app.diagnosis.domain.cases import Case, Diagnosis, Kind, Question, is_overcome
from app.diagnosis.domain.evidence import questions
from app.diagnosis.domain.quality import Answered, chunks_of
from app.diagnosis.domain.quality_texts import vocabulary
from app.retrievers.domain.retrievers import Scale
from app.scoring.rankings import match, prepare
from app.scoring.words import containment, grams, longest_common_part, split_by_overlap
from tests.support.fakes import answered, failed, hits

K, FETCH_K = 5, 10
IDS = tuple(f"doc-{number}" for number in range(10))
EXPECTED = "doc-1"
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa") * 2
TEXTS = {
    name: " ".join(f"{word}{number}" for word in WORDS)
    for number, name in enumerate((*IDS, *(f"other-{place}" for place in range(60))))
}
PASSAGE = "Refunds are paid within thirty days of the purchase if the goods come back unused and in their own box."
CANARY = Canary(key="refunds", query="how long do refunds take", judgments=(Judgment(id=EXPECTED),))


def ranked(*ids: str, scores: Sequence[float | None] | None = None, texts: dict[str, str] | None = None) -> Ranking:
    return hits(*ids, scores=scores, texts=TEXTS | {EXPECTED: PASSAGE} | (texts or {}))


HEALTHY = ranked(*IDS)
WITHOUT = tuple(name for name in IDS if name != EXPECTED)
FIRST = (Judgment(id=IDS[0]),)
BACK = ranked(EXPECTED, "doc-4", "doc-7")
NOT_BACK = ranked("other-1", "other-2", "other-3", *(f"other-{place}" for place in range(10, 17)))


def scores_without(*, cut: float = 0.0) -> list[float]:
    """Give the nine chunks that are left the scores they had."""
    known = dict(zip(HEALTHY.ids, HEALTHY.scores, strict=True))
    return [(known[name] or 0) + cut for name in WITHOUT]


def case(now: Ranking | None, **changes: Any) -> Case:
    return replace(
        Case(canary=CANARY, k=K, fetch_k=FETCH_K, now=now, healthy=HEALTHY, ever_passed=True, scale=Scale.COSINE),
        **changes,
    )


def diagnose(
    one: Case,
    *,
    repeats: Sequence[Ranking | Outcome] = (),
    deep: Ranking | Outcome | None = None,
    known: Ranking | Outcome = BACK,
    control: Ranking | None = None,
) -> Diagnosis:
    """Ask what would be asked and answer: repeats and the deep question, by default, as the run saw it."""
    asked = questions(one)
    seen: Ranking | Outcome = Outcome.TIMEOUT if one.now is None else one.now
    waiting = list(repeats or [seen] * 3)
    answers: list[Answer | None] = []
    for question in asked:
        if question.kind is Kind.CONTROL:
            answers.append(control if control is None else answered(control))
            continue
        said: Ranking | Outcome
        if question.kind is Kind.REPEAT:
            said = waiting.pop(0)
        elif question.kind is Kind.DEEP:
            said = deep if deep is not None else seen
        else:
            said = known
        answers.append(answered(said) if isinstance(said, Ranking) else failed(said))
    return classify(one, asked, answers)


# --- what is asked -------------------------------------------------------------------------------------------


def test_eight_questions_are_asked_the_passage_whole_and_in_halves() -> None:
    asked = questions(case(ranked(*WITHOUT)))
    assert [question.kind for question in asked].count(Kind.REPEAT) == 3
    assert [question.k for question in asked if question.kind is Kind.DEEP] == [50]
    passages = [question.query for question in asked if question.kind is Kind.KNOWN_ITEM]
    assert passages[0] == PASSAGE
    assert f"{passages[1]} {passages[2]}" == PASSAGE
    assert (asked[-1].kind, asked[-1].query, len(asked)) == (Kind.CONTROL, TEXTS["doc-0"], 8)


def test_no_passage_is_asked_for_that_stands_in_the_ranking_or_was_never_read() -> None:
    assert Kind.KNOWN_ITEM not in {question.kind for question in questions(case(ranked(*WITHOUT, EXPECTED)))}
    unread = case(hits(*WITHOUT), healthy=hits(*IDS))
    assert Kind.KNOWN_ITEM not in {question.kind for question in questions(unread)}
    assert Kind.KNOWN_ITEM in {question.kind for question in questions(replace(unread, texts={EXPECTED: PASSAGE}))}


def test_each_missing_passage_is_asked_for_before_any_half_and_no_more_than_the_cap() -> None:
    canary = replace(CANARY, judgments=tuple(Judgment(id=name) for name in IDS[:4]))
    one = case(ranked(*IDS[4:]), canary=canary)
    known = [question for question in questions(one) if question.kind is Kind.KNOWN_ITEM]
    assert [question.judgment for question in known] == [0, 1, 2]
    assert not [question for question in questions(one, known_items=0) if question.kind is Kind.KNOWN_ITEM]


def test_a_long_passage_is_cut_after_a_word() -> None:
    long = Judgment(text="word " * 1_000)
    query = questions(case(ranked(*WITHOUT), canary=replace(CANARY, judgments=(long,)), healthy=None))[2].query
    assert len(query) <= 1_000
    assert query.endswith("word")


def test_a_negative_canary_is_asked_again_and_deep_alone() -> None:
    negative = replace(CANARY, category=Category.NEGATIVE)
    assert {question.kind for question in questions(case(HEALTHY, canary=negative))} == {Kind.REPEAT, Kind.DEEP}


# --- each rule -----------------------------------------------------------------------------------------------


def test_a_failed_probe_is_an_error_of_the_retriever() -> None:
    found = diagnose(case(None))
    assert (found.cause, found.persistent) == (Cause.RETRIEVER_ERROR, True)
    assert "3 of 3 repeats failed (timeout)" in found.reason


def test_a_failed_probe_that_is_answered_when_asked_again_is_an_error_that_passed() -> None:
    found = diagnose(case(None), repeats=[HEALTHY] * 3)
    assert (found.cause, found.persistent) == (Cause.RETRIEVER_ERROR, False)
    assert "healthy on 3 retries" in found.reason


def test_repeats_that_all_fail_are_an_error_though_the_run_was_answered() -> None:
    assert diagnose(case(ranked(*WITHOUT)), repeats=[Outcome.REFUSED] * 3).cause is Cause.RETRIEVER_ERROR


def test_a_refused_deep_question_and_a_passage_too_long_are_no_error_of_the_retriever() -> None:
    now = ranked("other-1", "other-2", "other-3", "other-4", "other-5", EXPECTED, "doc-0", "doc-2", "doc-3", "doc-4")
    found = diagnose(case(now, scale=None), deep=Outcome.REFUSED, known=Outcome.REFUSED)
    assert found.cause is not Cause.RETRIEVER_ERROR


def test_a_single_failed_repeat_is_no_error_of_the_retriever() -> None:
    now = ranked(*WITHOUT, scores=scores_without())
    found = diagnose(case(now), repeats=[Outcome.TIMEOUT, now, now], known=NOT_BACK)
    assert found.cause is Cause.MISSING
    assert found.evidence["failed"] == ["timeout"]


def test_the_beginning_of_the_healthy_answer_is_an_answer_cut_off() -> None:
    now = ranked(IDS[0], scores=[0.9])
    found = diagnose(case(now), deep=now, known=ranked(EXPECTED))
    assert found.cause is Cause.TRUNCATED
    assert found.reason == (
        "The retriever returns only 1 hit where 10 were asked for; it returned 10 when the canary was healthy, "
        "the expected chunk at rank 2"
    )


def test_a_small_index_cuts_nothing_off() -> None:
    healthy = ranked(*IDS[:7])
    now = ranked(*WITHOUT[:6], scores=scores_without()[:6])
    found = diagnose(case(now, healthy=healthy), known=ranked("doc-0", "doc-2"))
    assert found.cause is Cause.MISSING


def test_a_short_answer_of_a_canary_never_healthy_is_not_told_as_cut_off() -> None:
    canary = replace(CANARY, judgments=(Judgment(text=PASSAGE),))
    one = case(ranked("doc-7", "doc-8"), canary=canary, healthy=None, ever_passed=False)
    assert diagnose(one, known=ranked("doc-8", "doc-9")).cause is Cause.MISSING
    assert diagnose(one, known=BACK).cause is Cause.VOCABULARY_MISMATCH

    by_id = case(hits("doc-7", "doc-8"), healthy=None, ever_passed=False)
    assert diagnose(by_id).cause is Cause.VOCABULARY_MISMATCH


def test_expected_documents_that_are_ids_of_hits_are_the_cause_and_the_other_way_round() -> None:
    now = replace(ranked(*IDS), documents=tuple(f"file-{chunk}" for chunk in IDS))
    for judgment, said in (
        (Judgment(document=IDS[2]), "What the canary expects as a document is no document of a hit but the id of one"),
        (Judgment(id=f"file-{IDS[2]}"), "What the canary expects as a chunk id is no id of a hit but the document of "),
    ):
        canary = replace(CANARY, judgments=(judgment,))
        found = diagnose(case(now, canary=canary, healthy=None, ever_passed=False), deep=now, known=now)
        assert (found.cause, found.rank_now) == (Cause.WRONG_FIELD, None)
        assert found.reason.startswith(said)
        once = diagnose(case(now, canary=canary, healthy=None, ever_passed=True), deep=now, known=now)
        assert once.cause is not Cause.WRONG_FIELD  # its first chunk may have had the document's name


def test_a_retriever_that_returned_few_hits_when_healthy_is_cut_off_only_where_the_chunk_is_there() -> None:
    for healthy, now in ((ranked(EXPECTED), hits()), (ranked("doc-0", EXPECTED), ranked("doc-0"))):
        one = case(now, healthy=healthy)
        assert diagnose(one, known=ranked(IDS[0])).cause is Cause.MISSING
        assert diagnose(one, known=ranked(EXPECTED)).cause is Cause.TRUNCATED


def test_a_retriever_that_answers_nothing_to_whole_passages_either_is_cut_off_though_it_returned_few_hits() -> None:
    one = case(hits(), healthy=ranked("doc-0", EXPECTED))
    assert diagnose(one, known=hits()).cause is Cause.TRUNCATED


@pytest.mark.parametrize(
    ("scale", "factor", "drifts"),
    [(Scale.COSINE, 0.96, True), (Scale.COSINE, 0.98, False), (Scale.UNBOUNDED, 0.92, False), (None, 0.5, True)],
)
def test_other_scores_are_a_drift_from_three_per_cent_on_and_ten_for_sums_of_words(
    scale: Scale | None, factor: float, *, drifts: bool
) -> None:
    now = ranked(*IDS, scores=[round((score or 0) * factor, 6) for score in HEALTHY.scores])
    found = diagnose(case(now, scale=scale))
    assert (found.cause is Cause.SCORE_DRIFT) is drifts
    assert found.evidence["score_change"] == pytest.approx(1 - factor, abs=1e-3)


def test_an_index_that_does_not_find_its_own_hits_by_their_texts_is_asked_in_another_encoding() -> None:
    one = case(NOT_BACK)
    found = diagnose(one, known=ranked("other-20"), control=ranked("other-30", "other-31"))
    assert (found.cause, found.evidence["ranks"]["control"]) == (Cause.SCORE_DRIFT, None)
    lost = diagnose(one, known=ranked("other-20"), control=NOT_BACK)
    assert (lost.cause, lost.evidence["ranks"]["control"]) == (Cause.MISSING, 1)


def test_of_a_canary_that_never_found_anything_no_change_of_the_encoding_is_claimed() -> None:
    canary = replace(CANARY, judgments=(Judgment(id="doc-99", text=PASSAGE),))
    one = case(NOT_BACK, canary=canary, healthy=None, ever_passed=False)
    found = diagnose(one, known=ranked("other-20"), control=ranked("other-30", "other-31"))
    assert found.cause is Cause.VOCABULARY_MISMATCH
    assert "cannot be told by asking for it" in found.reason
    assert "healthy" not in found.reason


def test_an_index_that_finds_no_hit_by_its_text_is_not_said_to_have_lost_what_no_text_brings() -> None:
    now = ranked(*WITHOUT, scores=scores_without())
    found = diagnose(case(now), known=NOT_BACK, control=ranked("other-30"))
    assert found.cause is Cause.LEFT_OUT
    assert "above its place; whether it is still in the index cannot be told by asking for it" in found.reason
    new = ranked("other-5", *WITHOUT, scores=[0.99, *scores_without()])
    found = diagnose(case(new), known=NOT_BACK, control=ranked("other-30"))
    assert found.cause is Cause.OUTRANKED
    assert "below the 10 best; whether it is still in the index cannot be told by asking for it" in found.reason


def test_of_several_expected_chunks_the_one_that_is_gone_is_told_beside_the_rank_of_another() -> None:
    two = replace(CANARY, judgments=(Judgment(id=EXPECTED), Judgment(id=IDS[2])))
    ids = (IDS[0], *IDS[3:8], "other-1", IDS[2], "other-2")
    now = ranked(*ids, scores=[0.9, 0.87, 0.86, 0.85, 0.84, 0.83, 0.5, 0.4, 0.3])
    found = diagnose(case(now, canary=two, scale=None), known=NOT_BACK)
    assert (found.cause, found.rank_now) == (Cause.MISSING, 8)
    assert found.reason.startswith("An expected chunk is gone from the index: ")
    assert found.reason.endswith("; another one stands at rank 8")


def test_a_chunk_that_another_canary_of_the_run_retrieved_is_not_gone() -> None:
    now = ranked(*WITHOUT, scores=scores_without(cut=0.05))
    others = (ranked("other-1"), ranked("other-2", EXPECTED))
    found = diagnose(case(now, others=others, scale=Scale.UNBOUNDED), known=NOT_BACK)
    assert found.cause is Cause.LEFT_OUT
    assert found.reason.endswith("above its place; it is in the index: answers to other canaries have it")
    new = ranked("new-1", *WITHOUT, scores=[1.1, *scores_without(cut=0.05)])
    found = diagnose(case(new, others=others, scale=Scale.UNBOUNDED), known=NOT_BACK)
    assert found.cause is Cause.OUTRANKED
    assert found.reason.endswith("below the 10 best; it is in the index: answers to other canaries have it")
    assert diagnose(case(now, others=others[:1], scale=Scale.UNBOUNDED), known=NOT_BACK).cause is Cause.MISSING


def test_scores_that_are_made_of_ranks_tell_nothing_of_the_encoder_or_of_what_is_passed_over() -> None:
    by_rank = [1 / rank for rank in range(1, 11)]
    now = ranked(*WITHOUT, "other-9", scores=by_rank)
    healthy = ranked(*IDS, scores=by_rank)
    assert diagnose(case(now, healthy=healthy, scale=None), known=NOT_BACK).cause is Cause.MISSING
    there = diagnose(case(now, healthy=healthy, scale=None, others=(ranked(EXPECTED),)), known=NOT_BACK)
    assert there.cause is Cause.LEFT_OUT
    same = [one / 2 for one in by_rank]
    assert diagnose(case(ranked(*IDS, scores=same), healthy=healthy, scale=None)).cause is Cause.SCORE_DRIFT


BY_RANK = [1 / rank for rank in range(1, 11)]


def test_a_chunk_that_nothing_came_in_above_is_left_out_whatever_its_rank_was() -> None:
    healthy = ranked(*IDS, scores=BY_RANK)
    for expected in IDS[:K]:
        left = [name for name in IDS if name != expected]
        one = case(
            ranked(*left, "other-9", scores=BY_RANK),
            healthy=healthy,
            scale=None,
            canary=replace(CANARY, judgments=(Judgment(id=expected),)),
        )
        found = diagnose(one, known=ranked(expected, "doc-4"))
        assert (found.cause, found.rank_before, found.rank_now) == (
            Cause.LEFT_OUT,
            IDS.index(expected) + 1,
            None,
        )
        assert found.reason.endswith(
            "nothing came in above its place; it is in the index: a query by its own text finds it"
        )


@pytest.mark.parametrize(
    "ids",
    [
        ("doc-0", "new-1", *IDS[2:]),  # something came in
        ("doc-0", "doc-3", "doc-2", *IDS[4:], "new-1"),  # the others do not keep their order
        ("new-1", "new-2", "doc-0"),  # nothing that ranked below it is there
    ],
)
def test_a_chunk_is_not_called_left_out_where_others_may_have_come_before_it(ids: tuple[str, ...]) -> None:
    one = case(ranked(*ids, scores=BY_RANK[: len(ids)]), healthy=ranked(*IDS, scores=BY_RANK), scale=None)
    assert (
        diagnose(one, known=BACK, deep=ranked(*ids, *(f"other-{at}" for at in range(20, 40)))).cause is Cause.OUTRANKED
    )


def test_a_chunk_that_a_deeper_question_brings_fell_and_is_not_left_out() -> None:
    now = ranked(*WITHOUT, "other-9", scores=BY_RANK)
    one = case(now, healthy=ranked(*IDS, scores=BY_RANK), scale=None)
    found = diagnose(one, deep=ranked(*now.ids, "other-10", EXPECTED))
    assert (found.cause, found.rank_now) == (Cause.OUTRANKED, 12)


def test_scores_that_moved_because_a_document_went_are_a_loss_and_no_drift() -> None:
    now = ranked(*WITHOUT, scores=[score * 0.8 for score in scores_without()])
    assert diagnose(case(now, scale=Scale.SIMILARITY), known=NOT_BACK).cause is Cause.MISSING
    assert diagnose(case(now, scale=Scale.COSINE), known=NOT_BACK).cause is Cause.SCORE_DRIFT


def test_a_chunk_that_neither_the_query_nor_its_own_text_brings_is_missing() -> None:
    found = diagnose(case(ranked(*WITHOUT, scores=scores_without())), known=NOT_BACK)
    assert (found.cause, found.persistent, found.rank_before, found.rank_now) == (Cause.MISSING, True, 2, None)
    assert found.evidence["gone"] == [0]


def test_a_chunk_whose_text_was_never_read_is_missing_where_the_deep_answer_lacks_it() -> None:
    known = dict(zip(HEALTHY.ids, HEALTHY.scores, strict=True))
    now = hits(*WITHOUT, "other-1", scores=[*(known[name] for name in WITHOUT), 0.1])
    found = diagnose(case(now, healthy=hits(*IDS)))
    assert found.cause is Cause.MISSING
    assert "its text is not known" in found.reason


def test_a_text_under_another_id_was_cut_anew_and_a_judgment_is_proposed() -> None:
    moved = ranked("new-7", "other-1", texts={"new-7": f"A heading. {PASSAGE} And more of the kind."})
    found = diagnose(case(ranked("new-1", "new-2", "new-3", "new-4", "new-5", "new-6")), known=moved)
    assert found.cause is Cause.RECHUNKED
    (proposed,) = found.reanchors
    assert proposed.judgment == Judgment(id=EXPECTED)
    assert proposed.proposals == (Judgment(id="new-7"),)
    assert proposed.similarity == 1.0
    assert "new-7" not in found.reason


def test_a_passage_cut_in_two_is_proposed_as_two_judgments_with_their_parts() -> None:
    canary = replace(CANARY, judgments=(Judgment(id=EXPECTED, text=PASSAGE, grade=2),))
    words = PASSAGE.split()
    first, second = " ".join(words[:11]), " ".join(words[11:])
    moved = ranked("new-1", "new-2", texts={"new-1": f"Before. {first}", "new-2": f"{second} After."})
    found = diagnose(case(ranked("other-1", *(f"other-{n}" for n in range(5, 14))), canary=canary), known=moved)
    assert found.cause is Cause.RECHUNKED
    assert found.reanchors[0].proposals == (
        Judgment(id="new-1", text=first, grade=2),
        Judgment(id="new-2", text=second, grade=2),
    )
    assert found.reanchors[0].similarity < 1


def test_an_id_that_holds_another_text_now_was_cut_anew() -> None:
    other = "Something about quite different matters stands here now, in words that nobody expected to be found."
    moved = ranked("doc-1", "doc-20", texts={EXPECTED: other, "doc-20": PASSAGE})
    ids = ("other-1", "other-2", "other-3", "other-4", "other-5", EXPECTED, *(f"other-{n}" for n in range(10, 14)))
    found = diagnose(case(ranked(*ids, texts={EXPECTED: other})), known=moved)
    assert found.cause is Cause.RECHUNKED
    assert found.reanchors[0].proposals == (Judgment(id="doc-20"),)


def test_of_hundreds_of_long_chunks_the_best_ranked_are_compared_and_little_is_kept() -> None:
    long = {f"new-{number}": f"{number} ".join(["word"] * 2 + TEXTS["doc-3"].split() * 300) for number in range(200)}
    long["new-9"] = f"{PASSAGE} {long['new-9']}"
    answer = ranked(*long, texts=long)
    grams.cache_clear()
    found = diagnose(case(NOT_BACK), deep=answer, known=answer)
    assert found.cause is Cause.RECHUNKED
    assert found.reanchors[0].proposals == (Judgment(id="new-9"),)
    kept = grams.cache_info()
    assert kept.misses < 100
    assert kept.currsize <= 64
    assert len(grams(" ".join(map(str, range(20_000))))) < 4_000


def test_a_neighbour_that_always_overlapped_is_no_new_home() -> None:
    overlap = {"doc-0": f"Earlier. {' '.join(PASSAGE.split()[:14])}"}
    now = ranked(*WITHOUT, scores=scores_without(), texts=overlap)
    found = diagnose(case(now, healthy=ranked(*IDS, texts=overlap)), known=ranked("doc-0", "doc-3", texts=overlap))
    assert found.cause is Cause.MISSING


def test_a_document_is_proposed_only_where_one_was_named() -> None:
    moved = replace(ranked("new-7", texts={"new-7": PASSAGE}), documents=("a/b",))
    one = case(NOT_BACK, canary=replace(CANARY, judgments=(Judgment(id=EXPECTED, document="old"),)))
    assert diagnose(one, known=moved).reanchors[0].proposals == (Judgment(id="new-7", document="a/b"),)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("entirely unrelated vocabulary", ": query and chunk use other words, 0 % of the query's are in the chunk"),
        (PASSAGE, ", though 100 % of the query's words are in the chunk: other chunks always rank before it"),
    ],
)
def test_what_was_never_found_is_said_to_use_other_words_where_the_quality_report_says_so(
    query: str, said: str
) -> None:
    canary = replace(CANARY, query=query, judgments=(Judgment(id="doc-99", text=PASSAGE),))
    now = ranked(*WITHOUT, "other-9")
    found = diagnose(case(now, canary=canary, healthy=None, ever_passed=False), known=ranked("doc-99", *IDS))
    assert found.reason.startswith(f"The canary never found what it expects among the top 5{said}")
    answered = Answered(canary=canary, ranking=now, match=match(prepare(canary.judgments), now))
    report = vocabulary([answered], chunks_of([answered]), k=5)
    assert ("use other words" in found.reason) == (report["numbers"]["missed_with_little_overlap"] == 1)


def test_what_was_never_found_though_it_is_there_never_passed() -> None:
    canary = replace(CANARY, judgments=(Judgment(id="doc-99", text=PASSAGE),))
    one = case(ranked(*WITHOUT, "other-9"), canary=canary, healthy=None, ever_passed=False)
    assert diagnose(one, known=ranked("doc-99", *IDS)).cause is Cause.VOCABULARY_MISMATCH
    assert diagnose(one, known=NOT_BACK).cause is Cause.MISSING


def test_what_stood_below_the_top_k_and_fell_from_there_is_not_called_never_found() -> None:
    others = tuple(name for name in IDS if name != EXPECTED)
    stood = ranked(*others[:6], EXPECTED, *others[6:])
    copies = {f"copy-{place}": TEXTS["other-7"] for place in range(4)}
    scores = [0.95] * 4 + [score or 0 for score in stood.scores[:7]]
    now = ranked(*copies, *others[:6], texts=copies, scores=scores[:10])
    deep = ranked(*now.ids, EXPECTED, texts=copies, scores=scores)
    found = diagnose(case(now, healthy=stood, ever_passed=False), deep=deep)
    assert (found.cause, found.rank_before, found.rank_now) == (Cause.DUPLICATES, 7, 11)
    assert "fell from rank 7 to rank 11" in found.reason


def test_a_second_chunk_that_fell_from_below_the_top_k_tells_the_ranks_and_not_the_first_that_rose() -> None:
    both = replace(CANARY, judgments=(Judgment(id=EXPECTED), Judgment(id="doc-8")))
    now = ranked(EXPECTED, *(name for name in IDS if name not in {EXPECTED, "doc-8"}))
    found = diagnose(case(now, canary=both), deep=ranked(*now.ids, "other-1", "doc-8"), known=ranked("doc-8"))
    assert (found.cause, found.rank_before, found.rank_now) == (Cause.OUTRANKED, 9, 11)
    assert "stands where it stood" not in found.reason


def test_new_near_copies_among_the_top_five_are_duplicates() -> None:
    copy = "The shop pays money back by bank transfer once the storekeeper has looked at what was sent in by post."
    copies = {f"copy-{number}": f"{copy} {number}" for number in range(5)}
    now = ranked(
        *copies, "doc-0", EXPECTED, "doc-2", "doc-3", "doc-4", scores=[0.95] * 5 + [0.9, 0.89, 0.88, 0.87, 0.86]
    )
    now = replace(now, texts=(*copies.values(), *now.texts[5:]))
    found = diagnose(case(now))
    assert (found.cause, found.rank_before, found.rank_now) == (Cause.DUPLICATES, 2, 7)
    assert found.reason == (
        "5 of the top 5 hits are near copies of one another under different ids: it fell from rank 2 to rank 7"
    )
    assert len(found.evidence["near_copies"]) == 10


def test_near_copies_that_always_stood_there_are_no_cause() -> None:
    alike = {"doc-0": f"{PASSAGE} One", "doc-2": f"{PASSAGE} Two"}
    now = ranked(
        "doc-0", "doc-2", "other-1", "other-2", "other-3", EXPECTED, "doc-3", "doc-4", "doc-5", "doc-6", texts=alike
    )
    now = replace(now, scores=(0.9, 0.88, 0.88, 0.88, 0.88, 0.87, 0.87, 0.86, 0.85, 0.84))
    assert diagnose(case(now, healthy=ranked(*IDS, texts=alike), scale=None)).cause is Cause.OUTRANKED


def test_a_chunk_seen_on_a_repeat_is_unstable_and_says_how_often() -> None:
    now = ranked(*WITHOUT, "other-9", scores=[*scores_without(), 0.5])
    found = diagnose(case(now), repeats=[now, HEALTHY, HEALTHY])
    assert (found.cause, found.persistent) == (Cause.UNSTABLE, True)
    assert "2 of 3 repeats" in found.reason


def test_a_flip_that_no_repeat_shows_again_is_said_to_be_gone() -> None:
    now = ranked(*WITHOUT, "other-9", scores=[*scores_without(), 0.5])
    found = diagnose(case(now), repeats=[HEALTHY] * 3, deep=HEALTHY)
    assert (found.cause, found.persistent) == (Cause.UNSTABLE, False)
    assert found.reason.endswith("healthy on 3 retries")


@pytest.mark.parametrize(("scale", "sign"), [(Scale.COSINE, 1), (Scale.DISTANCE, -1)])
def test_a_chunk_whose_stored_score_beats_todays_cut_is_passed_over(scale: Scale, sign: int) -> None:
    def turned(score: float | None) -> float:
        return (score or 0) if sign == 1 else round(1 - (score or 0), 6)

    healthy = ranked(*IDS, scores=[turned(score) for score in HEALTHY.scores])
    now = ranked(*WITHOUT, "other-9", scores=[*map(turned, scores_without()), turned(0.5)])
    found = diagnose(case(now, healthy=healthy, scale=scale))
    assert found.cause is Cause.UNSTABLE
    assert found.evidence["score_before"] == turned(0.89)


def test_a_chunk_that_others_outscore_is_outranked_with_the_rank_it_fell_to() -> None:
    ids = ("new-1", "new-2", "new-3", "new-4", "new-5", *IDS[:5])
    now = ranked(*ids, scores=[0.99, 0.98, 0.97, 0.96, 0.95, 0.9, 0.89, 0.88, 0.87, 0.86])
    found = diagnose(case(now))
    assert (found.cause, found.rank_before, found.rank_now, found.persistent) == (Cause.OUTRANKED, 2, 7, True)
    assert found.reason == "Other chunks rank before the expected one: it fell from rank 2 to rank 7"


def test_a_chunk_that_fell_within_the_top_is_told_by_its_rank() -> None:
    now = ranked("new-1", "new-2", IDS[0], EXPECTED, *IDS[2:8], scores=[0.95, 0.94, 0.9, 0.89, *HEALTHY.scores[2:8]])
    found = diagnose(case(now))
    assert (found.cause, found.rank_before, found.rank_now) == (Cause.OUTRANKED, 2, 4)


def test_a_canary_whose_score_alone_is_too_low_is_told_by_its_rank_and_that_score() -> None:
    now = ranked(*IDS[:6], scores=[0.4, 0.35, 0.3, 0.2, 0.1, 0.0])
    one = case(now, healthy=None, scale=Scale.SIMILARITY, too_low=0.4, canary=replace(CANARY, judgments=FIRST))
    found = diagnose(one)
    assert (found.cause, found.persistent, found.rank_before, found.rank_now) == (Cause.LOW_RELEVANCE, True, None, 1)
    assert found.reason == (
        "An expected chunk is found at rank 1; the first hit's relevance 0.40 is below its min_relevance_score 0.5"
    )
    assert found.evidence["ranks"] == {
        "before": None,
        "run": 1,
        "repeats": [1, 1, 1],
        "deep": 1,
        "known_items": [],
        "control": None,
    }


def test_a_score_that_was_enough_and_is_not_any_more_is_a_drift_and_one_that_hardly_moved_is_low() -> None:
    healthy = ranked(*IDS, scores=[0.505, *HEALTHY.scores[1:]])
    one = case(HEALTHY, healthy=healthy, too_low=0.2, canary=replace(CANARY, judgments=FIRST))
    drifted = diagnose(replace(one, now=ranked(*IDS, scores=[(score or 0) * 0.4 for score in healthy.scores])))
    assert (drifted.cause, drifted.rank_before, drifted.rank_now) == (Cause.SCORE_DRIFT, 1, 1)
    slipped = diagnose(replace(one, now=ranked(*IDS, scores=[0.499, *HEALTHY.scores[1:]]), too_low=0.499))
    assert (slipped.cause, slipped.rank_before, slipped.rank_now) == (Cause.LOW_RELEVANCE, 1, 1)
    assert "relevance 0.499 is below" in slipped.reason


def test_a_low_score_is_no_cause_where_the_expected_chunk_fell() -> None:
    ids = ("new-1", "new-2", "new-3", "new-4", "new-5", *IDS[:5])
    now = ranked(*ids, scores=[0.45, 0.44, 0.43, 0.42, 0.41, 0.4, 0.39, 0.38, 0.37, 0.36])
    healthy = ranked(*IDS[:5], scores=[0.4, 0.39, 0.38, 0.37, 0.36])
    assert diagnose(case(now, healthy=healthy, too_low=0.45)).cause is Cause.OUTRANKED


def test_a_score_that_is_enough_when_asked_again_is_said_to_be_well() -> None:
    one = case(ranked(*IDS, scores=[0.4] * 10), healthy=None, scale=Scale.UNBOUNDED, anchor=0.6, too_low=0.4)
    lower, higher = ranked(*IDS, scores=[0.41] * 10), ranked(*IDS, scores=[0.7] * 10)
    assert diagnose(one, repeats=[lower] * 3).persistent is True
    assert diagnose(one, repeats=[higher] * 3).persistent is False


# --- the order -----------------------------------------------------------------------------------------------


def test_a_cut_comes_before_a_loss() -> None:
    now = ranked(IDS[0], scores=[0.9])
    assert diagnose(case(now), known=ranked("other-1")).cause is Cause.TRUNCATED


def test_a_drift_comes_before_duplicates_and_rank() -> None:
    copies = {f"copy-{number}": f"{PASSAGE} {number}" for number in range(5)}
    now = ranked(*copies, *IDS[:5], scores=[0.9] * 5 + [0.4] * 5, texts=copies)
    assert diagnose(case(now)).cause is Cause.SCORE_DRIFT


# --- little is known -----------------------------------------------------------------------------------------


def test_a_canary_that_expects_nothing_still_gets_a_cause() -> None:
    found = diagnose(case(HEALTHY, canary=replace(CANARY, judgments=())))
    assert found.cause is Cause.OUTRANKED
    assert found.reason.startswith("Nothing is expected")


def test_without_an_answer_to_any_question_the_run_alone_decides() -> None:
    one = case(ranked("new-1", "new-2", "new-3", "new-4", "new-5", EXPECTED, scores=[0.9] * 5 + [0.89]))
    found = classify(one, questions(one), [])
    assert (found.cause, found.persistent, found.rank_now) == (Cause.OUTRANKED, None, 6)


# --- texts ---------------------------------------------------------------------------------------------------


def test_texts_are_held_by_their_word_three_grams_also_without_spaces() -> None:
    assert containment("one two three four", "zero one two three") == 0.5
    assert containment("東京都に住む", "私は東京都に住むつもりだ") == 1.0
    assert containment("...", "anything") == 0.0
    assert containment("two words", "two words") == 1.0


def test_a_passage_is_split_into_what_a_text_holds_and_what_not() -> None:
    found = split_by_overlap("Before - one, two  THREE four after it.", "zero ONE two three four five")
    assert found == [("Before - ", False), ("one, two  THREE four", True), (" after it.", False)]
    assert split_by_overlap("one two", "One, two!") == [("one two", True)]
    assert split_by_overlap("one two three", "three two one") == [("one two three", False)]
    assert split_by_overlap("", "one two three") == []


@given(st.lists(st.sampled_from("abc \n."), max_size=30), st.lists(st.sampled_from("abc "), max_size=30))
def test_what_a_passage_is_split_into_is_the_passage_in_turns(passage: list[str], text: list[str]) -> None:
    found = split_by_overlap("".join(passage), "".join(text))
    assert "".join(part for part, _ in found) == "".join(passage)
    assert all(one[1] is not other[1] for one, other in pairwise(found))


def test_the_part_held_is_written_as_it_stands_in_the_passage() -> None:
    assert longest_common_part("One, two - THREE four. Five six", "zero one two three four") == "One, two - THREE four."
    assert longest_common_part("One two three", "nothing of the kind") is None
    assert longest_common_part("", "nothing") is None


names = st.sampled_from(["doc-0", EXPECTED, "doc-2", "", "\0", "new\nline", "ид"])
texts = st.none() | st.sampled_from(["", "...", PASSAGE, f"{PASSAGE} once more", "東京都に住む"]) | st.text(max_size=30)
numbers = st.none() | st.sampled_from([0.0, -0.0, 0.5, 0.9, -3.0, 1e308, 5e-324, float("inf"), float("nan")])


@st.composite
def rankings(draw: st.DrawFn) -> Ranking:
    ids = draw(st.lists(names, unique=True, max_size=6))
    count = len(ids)

    def column(values: st.SearchStrategy[Any]) -> tuple[Any, ...]:
        return tuple(draw(st.lists(values, min_size=count, max_size=count)))

    return Ranking(
        ids=tuple(ids),
        documents=column(st.none() | names),
        texts=column(texts),
        scores=column(numbers),
        returned=count + draw(st.integers(0, 3)),
    )


judgments = st.builds(
    Judgment, id=st.none() | names, document=st.none() | names, text=texts, grade=st.integers(0, 3)
).filter(lambda one: (one.id, one.document, one.text) != (None, None, None))


@settings(max_examples=100, deadline=None)
@given(
    one=st.builds(
        Case,
        canary=st.builds(
            Canary,
            key=st.just("any"),
            query=st.text(max_size=10),
            judgments=st.lists(judgments, max_size=3).map(tuple),
            category=st.sampled_from([Category.PROCEDURAL, Category.NEGATIVE]),
        ),
        k=st.integers(1, 5),
        fetch_k=st.integers(1, 10),
        now=st.none() | rankings(),
        healthy=st.none() | rankings(),
        ever_passed=st.booleans(),
        scale=st.none() | st.sampled_from(Scale),
        texts=st.dictionaries(names, st.sampled_from(["", PASSAGE])),
    ),
    answers=st.lists(
        st.none()
        | rankings().map(answered)
        | st.sampled_from([Outcome.TIMEOUT, Outcome.REFUSED, Outcome.SKIPPED]).map(failed),
        max_size=8,
    ),
)
def test_whatever_is_remembered_and_answered_there_is_a_cause_with_a_reason(
    one: Case, answers: Sequence[Answer | None]
) -> None:
    asked: tuple[Question, ...] = questions(one)
    found = classify(one, asked, answers)
    assert found.cause in Cause
    assert found.reason
    assert not found.reason.endswith(".")
    assert "\0" not in found.reason
    json.dumps(dict(found.evidence), allow_nan=False)
    for proposed in found.reanchors:
        assert proposed.judgment == one.canary.judgments[proposed.index]
        assert proposed.proposals
        assert all(new.grade == proposed.judgment.grade and new != proposed.judgment for new in proposed.proposals)
        assert 0 < proposed.similarity <= 1


@pytest.mark.parametrize(
    ("then", "now", "overcome"),
    [(None, 1, True), (2, 1, True), (2, 2, False), (2, 3, False), (2, None, False), (None, None, False), (1, 1, False)],
)
def test_a_diagnosis_is_overcome_once_the_expected_chunk_ranks_higher(
    then: int | None, now: int | None, *, overcome: bool
) -> None:
    assert is_overcome(then, now) is overcome
