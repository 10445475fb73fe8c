"""What degraded canaries have in common, and the headline that says so."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.alerts.domain.summaries import CAUSE_WORDS
from app.base.values import Cause
from app.diagnosis.domain.fleets import FleetMember, Shape, fleet
from app.scoring.run_inputs import Group, GroupKind

BILLING = Group(kind=GroupKind.TAG, name="billing")
SEARCH = Group(kind=GroupKind.TAG, name="search")


def suite(
    fallen: dict[int, tuple[Cause | None, int | None]], *, size: int = 200, chance: float | None = None
) -> list[FleetMember]:
    """Make canaries of which the first forty are about billing."""
    return [
        FleetMember(
            key=f"canary-{place}",
            groups=(BILLING,) if place < 40 else (SEARCH,),
            fallen=place in fallen,
            chance=chance,
            cause=fallen.get(place, (None, None))[0],
            rank_now=fallen.get(place, (None, None))[1],
        )
        for place in range(size)
    ]


def test_a_few_in_one_group_are_told_by_that_group() -> None:
    told = fleet(suite({3: (Cause.MISSING, None), 5: (Cause.OUTRANKED, 14), 7: (Cause.MISSING, None)}, chance=0.002))
    assert told.headline == ("3 of 40 in billing: 2 missing, 1 outranked to rank 14; expected fewer than 0.1 by chance")
    assert (told.shape, told.group, told.fallen, told.of) == (Shape.FEW, BILLING, 3, 40)
    assert told.expected == pytest.approx(0.08)
    assert told.sentence.endswith("; by chance it would be fewer than 0.1")
    assert told.causes == {Cause.MISSING: 2, Cause.OUTRANKED: 1}


def test_a_group_that_holds_most_of_them_is_named_beside_the_whole() -> None:
    told = fleet(suite(dict.fromkeys((1, 2, 3, 150), (Cause.MISSING, None))))
    assert told.headline == "3 of 40 in billing, 4 of 200 in all: 4 missing"


def test_a_few_here_and_there_are_told_by_the_whole() -> None:
    told = fleet(suite({place: (Cause.OUTRANKED, place) for place in (30, 60, 90, 120)}))
    assert told.headline == "4 of 200: 4 outranked to ranks 30 to 120"
    assert told.group is None


@pytest.mark.parametrize(
    ("fallen", "size", "few"), [(3, 8, True), (4, 10, False), (9, 97, True), (10, 97, False), (20, 200, True)]
)
def test_three_or_a_tenth_of_all_are_a_few_and_no_more_than_that(fallen: int, size: int, *, few: bool) -> None:
    members = [FleetMember(key=f"canary-{place}", fallen=place < fallen) for place in range(size)]
    assert fleet(members).sentence.startswith("Few canaries newly degraded") is few


def test_all_that_fell_together_point_at_index_or_encoder() -> None:
    told = fleet(suite(dict.fromkeys(range(120), (Cause.SCORE_DRIFT, None))))
    assert (told.shape, told.headline) == (Shape.ALL, "120 of 200: 120 with other scores")
    assert "index or the encoder" in told.sentence


def test_a_single_one_is_a_ticket_by_its_name() -> None:
    told = fleet(suite({7: (Cause.UNSTABLE, 3)}))
    assert (told.shape, told.headline) == (Shape.ONE, "1 of 200 (canary-7): 1 unstable")
    assert "single canary" in told.sentence


def test_a_retriever_that_fails_says_nothing_of_the_index() -> None:
    told = fleet(suite(dict.fromkeys(range(150), (Cause.RETRIEVER_ERROR, None))))
    assert told.sentence == "The retriever fails, so the state of the index is unknown"


def test_most_of_a_group_points_at_a_part_of_the_index() -> None:
    told = fleet(suite(dict.fromkeys(range(30), (Cause.MISSING, None))))
    assert told.headline == "30 of 40 in billing: 30 missing"
    assert told.sentence.endswith("A part of the index is hit: half of billing or more")


def test_those_not_asked_about_are_said_to_be() -> None:
    told = fleet(suite({1: (Cause.MISSING, None), 60: (None, None), 90: (None, None)}))
    assert told.headline == "3 of 200: 1 missing, 2 others not explained yet"
    assert fleet(suite({1: (None, None)})).headline == "1 of 200 (canary-1): not explained yet"


def test_nothing_fell() -> None:
    assert fleet(suite({})).headline == "None of 200 canaries newly degraded"
    assert fleet([]).shape is Shape.NONE


def test_of_groups_with_the_same_canaries_the_category_is_named() -> None:
    twice = (Group(kind=GroupKind.DOCUMENT, name="a"), Group(kind=GroupKind.CATEGORY, name="z"))
    members = [
        FleetMember(key=str(n), groups=twice if n < 4 else (), fallen=n < 3, cause=Cause.MISSING) for n in range(100)
    ]
    told = fleet(members)
    assert told.group == twice[1]


def test_the_headline_says_how_many_would_have_fallen_by_chance() -> None:
    told = fleet(suite({1: (Cause.MISSING, None), 60: (Cause.MISSING, None)}, chance=0.005))
    assert (told.expected, told.headline) == (1.0, "2 of 200: 2 missing; expected at most 1.0 by chance")


def test_what_chance_explains_is_no_news_and_is_said_so() -> None:
    told = fleet(suite({1: (Cause.MISSING, None), 60: (Cause.MISSING, None)}, chance=0.01))
    assert (told.expected, told.headline) == (2.0, "2 of 200: 2 missing")
    assert told.sentence == "No more than chance explains, at most 2.0"


def test_who_was_degraded_before_could_not_fall_by_chance() -> None:
    chronic = [FleetMember(key=f"never-{place}", fallen=False, chronic=True, chance=0.9) for place in range(30)]
    told = fleet([*suite({1: (Cause.MISSING, None), 60: (Cause.MISSING, None)}, size=83, chance=0.002), *chronic])
    assert told.headline == "2 of 113: 2 missing; expected at most 0.2 by chance"


def test_nothing_fell_where_no_run_was_measured_before() -> None:
    told = fleet(suite({1: (Cause.MISSING, None), 60: (Cause.OUTRANKED, 9)}, chance=0.002), is_first=True)
    assert (told.shape, told.fallen) == (Shape.NONE, 0)
    assert told.headline == "2 of 200 canaries degraded in the first run: 1 missing, 1 outranked to rank 9"
    assert "fell" not in told.sentence


def _asked_again(*persistent: bool | None) -> list[FleetMember]:
    fallen = [
        FleetMember(key=f"fallen-{place}", fallen=True, cause=None if one is None else Cause.UNSTABLE, persistent=one)
        for place, one in enumerate(persistent)
    ]
    return [*fallen, *(FleetMember(key=f"well-{place}") for place in range(7))]


def test_who_was_well_when_asked_again_is_restless_and_did_not_fall() -> None:
    told = fleet(_asked_again(False, True, False))
    assert told.headline == "1 of 10 (fallen-1): 1 unstable; 2 of 3 healthy on retry"
    assert (told.shape, told.fallen, told.recovered_on_retry, told.causes) == (Shape.ONE, 1, 2, {Cause.UNSTABLE: 1})
    told = fleet(_asked_again(False, None))
    assert told.headline == "1 of 9 (fallen-1): not explained yet; 1 of 1 healthy on retry"


def test_where_all_were_well_when_asked_again_nothing_fell() -> None:
    told = fleet(_asked_again(False, False))
    assert (told.shape, told.fallen, told.recovered_on_retry) == (Shape.NONE, 0, 2)
    assert told.headline == "None of 9 canaries newly degraded; 2 of 2 healthy on retry"


def test_a_name_of_many_lines_stays_on_one() -> None:
    group = Group(kind=GroupKind.TAG, name="a\n\u202eb" + "c" * 100)
    members = [
        FleetMember(key=str(n), groups=(group,) if n < 5 else (), fallen=n < 3, cause=Cause.MISSING) for n in range(99)
    ]
    assert fleet(members).headline == f"3 of 5 in a b{'c' * 60}\u2026: 3 missing"


def test_every_cause_has_words() -> None:
    assert set(CAUSE_WORDS) == set(Cause)


members = st.lists(
    st.builds(
        FleetMember,
        key=st.text(max_size=5),
        groups=st.lists(
            st.builds(Group, kind=st.sampled_from(GroupKind), name=st.sampled_from(["a", "b", "\n", ""])), max_size=3
        ).map(tuple),
        fallen=st.booleans(),
        chance=st.none() | st.floats(0, 1),
        persistent=st.none() | st.booleans(),
        cause=st.none() | st.sampled_from(Cause),
        rank_now=st.none() | st.integers(1, 60),
    ),
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(members)
def test_whatever_fell_the_headline_is_one_line_and_counts_right(everyone: Sequence[FleetMember]) -> None:
    told = fleet(everyone)
    assert told.headline.isprintable()
    assert told.sentence.isprintable()
    assert 0 <= told.fallen <= told.of <= len(everyone)
    assert told.group is None or told.fallen >= 2
    stayed = [member for member in everyone if member.fallen and member.persistent is not False]
    assert (told.shape is Shape.NONE) == (not stayed)
    assert told.recovered_on_retry == sum(member.fallen for member in everyone) - len(stayed)
