"""What changed chunks and canaries have in common is named, beside the cases in which nothing is to be named."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from app.base.values import Canary, Category, Judgment, Ranking, RunCauseKind, replace
from app.diagnosis.domain.run_causes import RankingPair, find_run_cause
from app.diagnosis.domain.run_groups import RankedChunk, common_group, name_chunks
from app.retrievers.domain.retrievers import Scale
from tests.diagnosis.test_answer_causes import CHUNKS, Index, cut, mixed, told

# --- chunks --------------------------------------------------------------------------------------------------


def chunks(count: int, **columns: Callable[[int], Any]) -> list[RankedChunk]:
    """Make chunks whose columns are given by number; ids are but numbers."""
    made = {"ids": lambda number: f"{number:x}q", "documents": lambda _: None, "texts": lambda _: None} | columns
    given: dict[str, Any] = {name: tuple(map(give, range(count))) for name, give in made.items()}
    answer = Ranking(**given, scores=(1.0,) * count, returned=count)
    return [RankedChunk(answer, rank) for rank in range(count)]


def months(number: int) -> str:
    """Give one of twenty months, the last of which is 2026-10."""
    year, month = divmod(2025 * 12 + 2 + number % 20, 12)
    return f"{year}-{month + 1:02}"


def seconds(number: int) -> float:
    return datetime.fromisoformat(f"{months(number)}-14").replace(tzinfo=UTC).timestamp()


NEW, OLD = {18, 19}, {0, 1, 2}


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"documents": lambda number: f"{number}-report-{months(number)}.pdf"}, "dated"),
        ({"documents": lambda number: f"n{number}/{months(number).replace('-', '/')}/14.md"}, "dated"),
        ({"documents": lambda number: f"n{number}/{months(number).replace('-', '')}14-news"}, "dated"),
        ({"ids": lambda number: f"{number}.{months(number)}#0", "documents": lambda number: f"{number}."}, "dated"),
        ({"updated": seconds}, "last changed"),
        ({"texts": lambda number: f"As of {months(number)}-14 (before: 2001-01-30) it is {number}."}, "with dates of"),
    ],
)
def test_dates_are_read_from_names_from_changes_and_from_texts(columns: Any, word: str) -> None:
    some = chunks(200, **columns)
    of = {name: [one for number, one in enumerate(some) if number % 20 in which] for name, which in both().items()}
    assert name_chunks(of["new"], of["others"]) == f"all {word} 2026-09 or later"
    assert name_chunks(of["old"], of["others"] + of["new"]) == f"all {word} 2025-05 or earlier"
    assert name_chunks(of["one"], [one for one in some if one not in of["one"]]) == f"all {word} 2026-01"
    assert name_chunks([*of["new"], *of["old"][:1]], of["others"]) == f"mostly {word} 2026-09 or later"


def both() -> dict[str, set[int]]:
    return {"new": NEW, "old": OLD, "one": {10}, "others": set(range(20)) - NEW - OLD}


def test_the_widest_period_is_named_that_the_others_are_not_in() -> None:
    some = chunks(200, documents=lambda number: f"{number}-{2020 + number % 5}-03-{1 + number % 28:02}")
    newest = [one for one in some if one.name.partition("-")[2] >= "2024"]
    late = [one for one in newest if one.name[-2:] >= "20"]
    others = [one for one in some if one not in newest]
    assert name_chunks(newest, others) == "all dated 2024 or later"
    assert name_chunks(late, [one for one in some if one not in late]) == "all dated 2024-03-20 or later"


def test_no_date_is_named_where_the_others_have_it_too_or_chance_would_do() -> None:
    some = chunks(200, documents=lambda number: f"{number}-{months(number)}")
    drawn = np.random.default_rng(1).permutation(200)[:20].tolist()
    assert name_chunks([some[one] for one in drawn], [one for n, one in enumerate(some) if n not in drawn]) == ""
    same_day = chunks(200, documents=lambda number: f"{number}-2026-09")
    assert name_chunks(same_day[:20], same_day[20:]) == ""
    assert name_chunks([some[18], some[19]], [some[0], some[1]]) == ""  # two are too few
    undated = chunks(200, documents=lambda number: f"{number}-2026-09" if number < 20 else f"{number}.")
    assert name_chunks(undated[:20], undated[20:]) == ""  # nobody knows when the others are from
    numbered = chunks(200, documents=lambda number: f"{number}.{202600 + number}")
    assert name_chunks(numbered[180:], numbered[:180]) == ""  # which are no months


def test_documents_are_named_only_where_most_of_the_others_are_elsewhere() -> None:
    some = chunks(160, documents=lambda number: f"product-{'ab'[number % 2]}/doc-{number}")
    odd, even = some[1::2], some[::2]
    assert name_chunks(odd, even) == "all in documents of product-b"
    assert name_chunks([*odd, *even[:2]], even[2:]) == "mostly in documents of product-b"
    assert name_chunks(odd[:20], [*odd[20:40], *even]) == "all in documents of product-b"
    assert name_chunks(odd[:10], [*odd[10:], *even]) == ""  # more of it are there than are gone
    assert name_chunks(odd[:40], odd[40:]) == ""  # all chunks are of it
    assert name_chunks(some[:80], some[80:]) == ""  # half of all, of both


def test_each_of_the_others_stands_for_as_many_as_were_left_out() -> None:
    some = chunks(60, documents=lambda number: f"product-{'ab'[number < 30]}/doc-{number}")
    assert name_chunks(some[:20], some[20:]) == "all in documents of product-b"
    assert name_chunks(some[:20], some[20:], each=3) == ""


@pytest.mark.parametrize("seed", range(4))
def test_a_replica_that_lacks_what_is_new_and_new_chunks_of_one_source_are_named(seed: int) -> None:
    index = Index.of(seed)
    index.ids = [f"page-{number}./{2010 + number % 16}-05-01" for number in range(CHUNKS)]
    stale = index.without(lambda number: number % 16 >= 13).answers()
    (found,) = told(index.answers(), mixed(seed, index.answers(), stale))
    assert found.kind is RunCauseKind.REPLICAS_DIFFER
    assert found.evidence.endswith("to the last hit, all dated 2023 or later")
    scores = np.random.default_rng(seed).random((len(index.scores), 32))
    new = index.with_new([f"another {one} text of its own {one}" for one in range(32)], scores)
    (came,) = told(index.answers(), new.answers())
    assert came.phrase == "outranked by new chunks, all in documents of import"


# --- canaries ------------------------------------------------------------------------------------------------


def canaries(count: int, tags: Callable[[int], Sequence[str]]) -> list[Canary]:
    return [Canary(key=f"q{one}", query="?", tags=tuple(tags(one))) for one in range(count)]


def test_a_tag_of_the_changed_canaries_is_named_with_how_many_of_the_others_have_it() -> None:
    some = canaries(60, lambda number: ("docs", "billing") if number < 15 else ("docs",))
    all_of_it = common_group(some, [number < 12 for number in range(60)])
    assert str(all_of_it) == "all of tag billing"
    assert all_of_it is not None
    assert all_of_it.figures == "12 of the 12 canaries affected have the tag billing, and 3 of the 48 others"
    mostly = common_group(some, [number < 12 or number in {30, 40} for number in range(60)])
    assert str(mostly) == "mostly of tag billing"


def test_no_tag_is_named_that_the_others_have_too_or_chance_explains() -> None:
    changed = [number < 12 for number in range(60)]
    assert common_group(canaries(60, lambda _: ("billing",)), changed) is None
    assert common_group(canaries(60, lambda _: ("billing",)), [True] * 60) is None
    assert common_group(canaries(60, lambda number: ("billing",) if number < 40 else ()), changed) is None
    assert (
        common_group(canaries(60, lambda number: ("billing",) if number < 6 else ()), changed) is None
    )  # half of them
    assert (
        common_group(canaries(60, lambda number: ("billing",) if number < 2 else ()), [True, True, *[False] * 58])
        is None
    )
    unlikely_once = canaries(12, lambda number: (f"one-{number}", "billing") if number < 4 else (f"one-{number}",))
    assert common_group(unlikely_once, [number < 3 for number in range(12)]) is None


def test_a_category_is_named_but_for_the_one_that_nobody_chose() -> None:
    def of(category: Category) -> list[Canary]:
        return [
            replace(one, category=category) if place < 12 else one
            for place, one in enumerate(canaries(60, lambda _: ()))
        ]

    changed = [number < 12 for number in range(60)]
    assert str(common_group(of(Category.PROCEDURAL), changed)) == "all of category procedural"
    others = [
        replace(one, category=Category.NEGATIVE) if place >= 12 else one
        for place, one in enumerate(of(Category.SIMPLE_FACTUAL))
    ]
    assert common_group(others, changed) is None


def test_the_cause_of_a_run_says_whose_answers_are_empty_and_who_lost_chunks() -> None:
    index = Index.of(1)
    answers = index.answers()
    lacking = index.without(lambda number: number % 10 == 0).answers()
    empty = [cut(one, []) if place < 12 else one for place, one in enumerate(answers)]

    def cause(now: Sequence[Ranking], tagged: Callable[[int], bool]) -> Any:
        pairs = [
            RankingPair(
                canary=Canary(
                    key=f"q{place}",
                    query="?",
                    judgments=(Judgment(id=before.ids[0]),),
                    tags=("billing",) if tagged(place) else (),
                ),
                before=before,
                now=one,
            )
            for place, (before, one) in enumerate(zip(answers, now, strict=True))
        ]
        return find_run_cause(pairs, k=5, scale=Scale.SIMILARITY, since_run=8, before_run=7)

    assert cause(empty, lambda place: place < 14).phrase == "12 of 60 answers are empty, all of tag billing"
    assert cause(empty, lambda _: True).phrase == "12 of 60 answers are empty"
    hurt = {place for place, (a, b) in enumerate(zip(answers, lacking, strict=True)) if a.ids != b.ids}
    lost = cause(lacking, hurt.__contains__)
    assert lost.phrase == "chunks missing from the index"
    assert (
        f"; {len(hurt)} of the {len(hurt)} canaries affected have the tag billing, and 0 of the {60 - len(hurt)} others"
        in lost.reason
    )
    assert "billing" not in cause(lacking, lambda place: place % 2 == 0).reason
