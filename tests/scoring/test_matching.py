"""Matching: which hits satisfy which judgments, by which level, and how that is stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.values import Judgment, Level, Ranking, replace
from app.scoring.rankings import Match, match, missing_judgments, prepare
from tests.support.plain_measures import plain_matches
from tests.support.random_rankings import judgment_lists, ranking_of, rankings


def hits(*rows: tuple[str, str | None, str | None]) -> Ranking:
    """Make a ranking of (id, document, text)."""
    return Ranking(
        ids=tuple(row[0] for row in rows),
        documents=tuple(row[1] for row in rows),
        texts=tuple(row[2] for row in rows),
        scores=(None,) * len(rows),
        returned=len(rows),
    )


def one_hit(judgment: Judgment, text: str) -> Level | None:
    """Say by which level a hit with this text, and nothing else in common, satisfies a judgment."""
    return match(prepare([judgment]), hits(("other", None, text))).levels[0]


def test_a_judgment_by_id_is_found_at_its_rank() -> None:
    result = match(prepare([Judgment(id="b", grade=2), Judgment(id="z")]), ranking_of("abc"))
    assert result.judgment == (-1, 0, -1)
    assert result.levels == (None, Level.ID, None)
    assert result.grade == bytes([0, 2, 0])
    assert result.first == (2, None)
    assert result.first_relevant == 2


def test_rankings_of_one_pattern_share_a_match_unless_they_are_long() -> None:
    one, other = prepare([Judgment(id="b", grade=2)]), prepare([Judgment(id="y", grade=2)])
    assert match(one, ranking_of("abc")) is match(other, ranking_of("xyz"))
    assert match(one, ranking_of("abc")) != match(prepare([Judgment(id="y", grade=1)]), ranking_of("xyz"))
    long = [f"chunk-{number}" for number in range(100)]
    assert match(one, ranking_of(long)) is not match(one, ranking_of(long))


def test_each_level_is_tried_in_order_and_the_first_that_agrees_is_kept() -> None:
    judgment = Judgment(id="a", document="doc", text="kept for thirty days")
    ranking = hits(
        ("w", "elsewhere", "Backups are kept for thirty days."),
        ("x", None, "Kept for thirty days!"),
        ("y", "doc", "Kept for thirty days!"),
        ("a", "doc", "Kept for thirty days!"),
    )
    result = match(prepare([judgment]), ranking)
    assert result.levels == (Level.PASSAGE, Level.TEXT, Level.DOCUMENT, Level.ID)


def test_a_known_irrelevant_chunk_is_judged_and_not_relevant() -> None:
    result = match(prepare([Judgment(id="a", grade=0)]), ranking_of("ab"))
    assert (result.judged, result.relevant, result.found) == (bytes([1, 0]), bytes(2), bytes(2))
    assert result.first_relevant is None


def test_the_corrected_version_of_a_withdrawn_text_is_not_taken_for_it() -> None:
    withdrawn = Judgment(text="Refunds are granted within 30 days of the purchase, without further questions.")
    corrected = hits(("a", None, "Refunds are granted within 14 days of the purchase, without further questions."))
    copied = hits(("a", None, "Terms: refunds are granted within\n30 days of the purchase, without further questions!"))
    assert match(prepare([withdrawn]), corrected).first_relevant is None
    renamed = hits(("a", None, "Refunds are granted within 30 days of the purchase, without farther questions."))
    assert match(prepare([withdrawn]), renamed).first_relevant == 1
    assert match(prepare([withdrawn], verbatim=True), renamed).first_relevant is None
    assert match(prepare([withdrawn], verbatim=True), corrected).first_relevant is None
    assert match(prepare([withdrawn], verbatim=True), copied).first_relevant == 1


def test_a_forbidden_chunk_is_any_match() -> None:
    forbidden = prepare([Judgment(document="secret"), Judgment(id="x")])
    assert match(forbidden, hits(("a", None, None), ("b", "secret", None))).first_relevant == 2
    assert match(forbidden, hits(("a", None, None))).first_relevant is None


def test_missing_lists_the_expected_chunks_outside_the_top_k() -> None:
    judgments = [Judgment(id="a"), Judgment(id="c"), Judgment(id="z", grade=3), Judgment(id="y", grade=0)]
    prepared = prepare(judgments)
    result = match(prepared, ranking_of("abc"))
    assert missing_judgments(prepared, result) == (judgments[2],)
    assert missing_judgments(prepared, result, 2) == (judgments[1], judgments[2])
    assert missing_judgments(prepared, result, 3) == (judgments[2],)


def test_nothing_expected_or_nothing_returned_matches_nothing() -> None:
    assert not any(match(prepare([]), ranking_of("abc")).judged)
    empty = match(prepare([Judgment(id="a"), Judgment(text="a")]), ranking_of(""))
    assert (len(empty), empty.first) == (0, (None, None))


@pytest.mark.parametrize(
    "returned",
    [
        "THE RETENTION PERIOD IS THIRTY DAYS",
        "The retention period\n\tis  thirty\u00a0days",
        "\u201cThe retention period\u201d is \u2018thirty\u2019 days.",
        "The reten-\n  tion period is thirty days",
        "The reten\u00ad\ntion period is thirty days",
        "The retention per\u200biod is thirty days",
        "The retention period is thirty days",
        "**The** retention `period` is _thirty_ days…",
    ],
)
def test_reformatting_does_not_change_a_text(returned: str) -> None:
    assert one_hit(Judgment(text="The retention period is thirty days"), returned) is Level.TEXT


@pytest.mark.parametrize("text", ["after 130 days", "30 daystars", "after 30, days"])
def test_a_short_passage_must_stand_as_whole_words(text: str) -> None:
    expected = Level.PASSAGE if "," in text else None
    assert one_hit(Judgment(text="30 days"), text) is expected


def test_a_short_passage_is_found_behind_a_place_where_it_splits_a_word() -> None:
    assert one_hit(Judgment(text="30 days"), "not 130 days but 30 days") is Level.PASSAGE


def test_a_short_passage_is_found_where_words_are_not_parted_by_spaces() -> None:
    assert one_hit(Judgment(text="三十日間"), "データは三十日間保存されます") is Level.PASSAGE


def test_a_long_passage_may_be_cut_inside_a_word() -> None:
    expected = "tention period is thirty days unless a legal ho"
    text = "The retention period is thirty days, unless a legal hold applies."
    assert one_hit(Judgment(text=expected), text) is Level.PASSAGE


def test_a_chunk_that_is_only_part_of_the_expected_text_does_not_hold_it() -> None:
    assert one_hit(Judgment(text="kept for thirty days in two regions"), "kept for thirty days") is None


@pytest.mark.parametrize("text", ["", "...", " \n"])
def test_a_text_without_words_matches_nothing(text: str) -> None:
    assert one_hit(Judgment(text=text), "anything") is None
    assert one_hit(Judgment(text=text), text) is None


@pytest.mark.parametrize("judgment", [Judgment(), Judgment(id="a", grade=4), Judgment(id="a", grade=-1)])
def test_a_judgment_that_cannot_be_matched_is_refused(judgment: Judgment) -> None:
    with pytest.raises(ValueError, match=r"judgment needs|grade is between"):
        prepare([judgment])


def test_many_judgments_may_be_met_whatever_they_go_by() -> None:
    many = prepare([Judgment(id=f"d{number}", grade=number % 4) for number in range(2000)])
    result = match(many, ranking_of(["d1999", "x", "d2"]))
    assert result.judgment == (1999, -1, 2)
    assert result.gain == bytes([3, 0, 2])
    for judgment in (Judgment(id="a"), Judgment(document="doc"), Judgment(text="ash")):
        for count in (255, 256, 5000):
            result = match(
                prepare([judgment] * count), hits(("x", None, None), ("a", "doc", "ash"), ("b", "doc", "ash"))
            )
            assert list(result.found) == [0, count, 0]
            assert result.gain == bytes([0, 1, 0])
            assert result.first == (2,) * count
            assert Match.from_bytes(result.to_bytes()) == result


@given(judgment_lists(), rankings())
def test_match_agrees_with_comparing_every_hit_with_every_judgment(judgments: list[Judgment], ranking: Ranking) -> None:
    result = match(prepare(judgments), ranking)
    known: set[int] = set()
    for position, places in enumerate(plain_matches(judgments, ranking)):
        relevant = {place for place in places if judgments[place].grade}
        new = {place for place in relevant if place not in known}
        assert result.judged[position] == bool(places)
        assert result.relevant[position] == bool(relevant)
        assert result.found[position] == len(new)
        assert result.gain[position] == max((judgments[place].grade for place in new), default=0)
        credited = result.judgment[position]
        assert (credited in places) if places else (credited == -1)
        assert result.grade[position] == (judgments[credited].grade if places else 0)
        assert all(result.first[place] == position + 1 for place in places - known)
        known |= places
    assert {place for place, rank in enumerate(result.first) if rank} == known
    assert [bool(code) for code in result.first_level] == [rank is not None for rank in result.first]
    by_id = [ranking.ids.index(one.id) + 1 if one.id in ranking.ids else None for one in judgments]
    assert result.first_by_id == tuple(by_id)


@given(st.lists(st.sampled_from("abcdefgh"), unique=True), rankings())
def test_the_short_way_for_ids_gives_the_same_as_the_long_one(ids: list[str], ranking: Ranking) -> None:
    judgments = [Judgment(id=one, grade=place % 4) for place, one in enumerate(ids)]
    short = match(prepare(judgments), ranking)
    long = match(prepare([*judgments, Judgment(document="nowhere")]), ranking)
    assert (short.judgment, short.level, short.grade, short.found) == (
        long.judgment,
        long.level,
        long.grade,
        long.found,
    )
    assert (short.first, short.first_level) == (long.first[:-1], long.first_level[:-1])
    assert short.first_by_id == long.first_by_id[:-1]


@given(judgment_lists(), rankings())
def test_a_stored_match_comes_back_the_same(judgments: list[Judgment], ranking: Ranking) -> None:
    result = match(prepare(judgments), ranking)
    assert Match.from_bytes(result.to_bytes()) == result


def test_a_stored_match_is_small_and_takes_large_numbers() -> None:
    judgments = [Judgment(id=f"d{number}") for number in range(3)]
    assert len(match(prepare(judgments), ranking_of([f"d{number}" for number in range(10)])).to_bytes()) <= 24
    many = prepare([Judgment(id=f"d{number}") for number in range(1000)])
    result = match(many, ranking_of([f"d{number + 500}" for number in range(600)]))
    assert Match.from_bytes(result.to_bytes()) == result


@given(judgment_lists(), rankings(), st.data())
def test_a_stored_match_cut_short_is_refused(judgments: list[Judgment], ranking: Ranking, data: st.DataObject) -> None:
    packed = match(prepare(judgments), ranking).to_bytes()
    with pytest.raises(ValueError, match="stored match"):
        Match.from_bytes(packed[: data.draw(st.integers(0, len(packed) - 1))])


def test_a_stored_match_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 1 or 2"):
        Match.from_bytes(b"\3\0\0\0\0")


def test_a_stored_match_of_format_one_is_read_but_for_the_rank_by_id_that_it_did_not_keep() -> None:
    judgments = [Judgment(id="a", text="ash"), Judgment(id="b", text="birch", grade=3)]
    ranking = hits(("b", None, "birch"), ("copy", None, "ash"), ("a", None, "ash"))
    now = match(prepare(judgments), ranking)
    then = Match.from_bytes(bytes.fromhex("010302030200070101010d00010205000000130109"))
    assert now.first_by_id == (3, 1)
    assert then.first_by_id == (None, 1)
    assert replace(then, first_by_id=now.first_by_id) == now


def test_the_rank_by_id_is_kept_apart_from_the_rank_by_any_level() -> None:
    judgments = [Judgment(id="a", text="ash"), Judgment(id="b", text="birch"), Judgment(id="c"), Judgment(text="elm")]
    ranking = hits(("x", None, "ash"), ("b", None, None), ("y", None, "birch"), ("a", None, "ash"), ("z", None, "elm"))
    result = match(prepare(judgments), ranking)
    assert result.first == (1, 2, None, 5)
    assert result.first_by_id == (4, 2, None, None)
