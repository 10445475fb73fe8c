"""docs/measures.md: its figures are computed here, its tables name every measure."""

import re
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from app.base.values import Judgment, Ranking
from app.scoring.measures import CUTOFFS, measures_for, parse_measure
from tests.support.doc_pages import pages
from tests.support.exchangeable_runs import EQUALS, MOST_CLAIMS
from tests.support.published_examples import ONE_QUERY, Q1, Q2, expecting, ndcg_of_retrieved
from tests.support.random_rankings import Topic, ranking_of
from tests.support.scored_topics import scored

PAGE = "docs/measures.md"
THE_ARTICLES = "the article's NDCG@"


def section(heading: str) -> str:
    """Return the text under one heading, up to the next."""
    return re.split(r"^#+ .*$", pages()[PAGE].partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table under one heading, without those of its head."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")][2:]
    assert lines
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def score(name: str, *topics: Topic, fetch_k: int = 20) -> list[float]:
    """Score topics by one measure."""
    return list(scored(topics, [parse_measure(name)], fetch_k)[:, 0])


def shown(value: float, cell: str) -> bool:
    """Whether a value, rounded to as many digits, is what a cell shows."""
    return f"{value:.{len(cell.partition('.')[2])}f}".removeprefix("0" * cell.startswith(".")) == cell


def test_the_example_of_one_query() -> None:
    table = rows("One query")
    assert [name for name, _ in table] == ["`Hit@10`", "`P@10`", "`R@10`", "`F1@10`"]
    wrong = [(name, cell) for name, cell in table if not shown(score(name.strip("`"), ONE_QUERY)[0], cell)]
    assert wrong == []


def test_the_example_of_two_queries_with_ndcg_as_here_and_as_the_article_has_it() -> None:
    table = rows("Two queries")
    assert len(table) == 14
    for name, *cells in table:
        if name.startswith(THE_ARTICLES):
            values = [ndcg_of_retrieved(topic, int(name.removeprefix(THE_ARTICLES))) for topic in (Q1, Q2)]
        else:
            values = score(name.strip("`"), Q1, Q2)
        wrong = [
            cell for value, cell in zip([*values, float(np.mean(values))], cells, strict=True) if not shown(value, cell)
        ]
        assert wrong == [], name


def test_the_scale_of_err() -> None:
    for count, *cells in rows("The scale of ERR"):
        ids = [f"d{number}" for number in range(int(count))]
        for grade, cell in enumerate(cells, start=1):
            [value] = score("ERR@10", ([Judgment(id=one, grade=grade) for one in ids], ranking_of(ids)))
            assert shown(value, cell), (count, grade)


def test_the_table_of_false_claims_has_every_row_that_is_measured_and_keeps_the_promise() -> None:
    heading = "How often a comparison is wrong"
    table = {name: (float(claimed), float(interval)) for name, claimed, interval in rows(heading)}
    assert list(table) == list(EQUALS)
    assert all(claimed <= MOST_CLAIMS and claimed < interval for claimed, interval in table.values())
    # Student's t widens the intervals of few canaries, of which few move, beyond what the promise needs.
    assert {name for name, (_, interval) in table.items() if interval <= MOST_CLAIMS} == {
        "20 canaries, 1 to 4 chunks expected, nearly steady"
    }
    assert "`python -m benchmarks.comparing`" in section(heading)


# --- how each can be gamed ---------------------------------------------------------------------------------------


def ranked(relevant: Mapping[int, str], hits: int) -> Ranking:
    """Make a ranking with relevant chunks at some ranks and noise at the others."""
    return ranking_of([relevant.get(rank, f"noise-{rank}") for rank in range(1, hits + 1)])


def of_one_document(hits: int) -> Topic:
    """Make a top five with so many chunks of the one expected document."""
    documents = tuple("page" if place < hits else f"other-{place}" for place in range(5))
    ids = tuple(f"chunk-{place}" for place in range(5))
    nothing = (None,) * 5
    ranking = Ranking(ids=ids, documents=documents, texts=nothing, scores=nothing, returned=5)
    return [Judgment(document="page")], ranking


FIVE = expecting("a", "b", "c", "d", "e")
EARLY = FIVE, ranked({2: "a", 5: "b"}, 10)
FIRST = FIVE, ranked({1: "a"}, 10)
LONG = FIVE, ranked({1: "a", 7: "b", 9: "c", 15: "d", 20: "e"}, 20)
POOR = expecting("d1", "d2", "d4"), ranked({1: "d1"}, 5)
DEEP = expecting("a")


def perfect(grade: int) -> Topic:
    """Make a perfect answer to a canary of one judgment."""
    return [Judgment(id="a", grade=grade)], ranking_of("ab")


def one(name: str, topic: Topic, fetch_k: int = 20) -> float:
    """Score one topic."""
    return score(name, topic, fetch_k=fetch_k)[0]


GAMED: Mapping[str, Callable[[], list[float]]] = {
    "an expected document is cut": lambda: [one(name, of_one_document(n)) for name in ("P@5", "R@5") for n in (1, 5)],
    "the surest chunk first": lambda: [one(name, topic) for name in ("MRR", "R@10") for topic in (EARLY, FIRST)],
    "20 hits asked for instead of 10": lambda: [
        one(name, (DEEP, ranked({15: "a"}, hits)), hits) for name in ("MRR", "MAP", "R@10") for hits in (10, 20)
    ],
    "a larger k": lambda: [one(name, LONG) for name in ("R@5", "R@20", "P@5", "P@20")],
    "the ideal of NDCG": lambda: [ndcg_of_retrieved(POOR, 5), one("NDCG@5", POOR), one("R@5", POOR)],
    "everything judged of grade 3": lambda: [
        one(name, perfect(grade)) for name in ("ERR@5", "NDCG@5") for grade in (1, 3)
    ],
}


@pytest.mark.parametrize("done", GAMED)
def test_a_measure_is_gamed_by_as_much_as_the_page_says(done: str) -> None:
    (row,) = [cells for cells in rows("How each can be gamed") if cells[0].startswith(done)]
    figures = re.findall(r"(?<![\w@])[01]?\.\d{3}", " ".join(row[1:3]))
    values = GAMED[done]()
    assert len(figures) == len(values)
    assert [cell for value, cell in zip(values, figures, strict=True) if not shown(value, cell)] == []


def test_every_figure_about_gaming_is_computed() -> None:
    told = [cells[0] for cells in rows("How each can be gamed") if re.search(r"\.\d{3}", " ".join(cells))]
    assert [done for done in told if not any(done.startswith(known) for known in GAMED)] == []


def test_every_measure_has_a_formula() -> None:
    named = {name.partition("@")[0] for cells in rows("Formulas") for name in re.findall(r"`([\w@]+)`", cells[0])}
    assert named == {measure.name for measure in measures_for(CUTOFFS)} | {"RBO", "top_score", "health_score"}
