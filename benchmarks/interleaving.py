"""Units that interleaving needs for a decision beside an A/B test, with simulated users over a public collection.

    python -m benchmarks.interleaving [REPETITIONS] [FOLDER]

FOLDER (default ../shared/data/xquad_en) has the documents and queries; A and B are rankings of ten chunks. Users follow
the cascade model: they read from the top, click a relevant chunk with probability .6 and another one with .1, and stop
after a relevant click with .7. The A/B test counts a unit as a success if it clicks at all, or if it clicks the first
chunk. 200,000 sessions of each kind are simulated, and REPETITIONS (default 2,000) experiments of up to 20,000 units
are drawn from them, looked at after every 50 units. Users who click at random show how often a winner is found falsely.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from app.comparison.domain.outcomes import Side
from app.experiments.domain.experiments import Preferences, estimate_preference, interleave
from benchmarks.experiments import MOST_FALSE, STEP, UNITS, Design, first, simulate
from benchmarks.text_indexes import Collection, rank_bm25, rank_lsi, read_collection

DEPTH: Final = 10
SESSIONS: Final = 200_000
CLICK_RELEVANT, CLICK_OTHER, STOP = 0.6, 0.1, 0.7

Rankings = list[list[str]]
Click = Callable[[Sequence[str], int, np.random.Generator], list[str]]
"""(shown, number of the query, randomness) -> the chunks that a user clicks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """What users do with the rankings of a pair: shares of sessions."""

    prefer: tuple[float, float]
    """Interleaved sessions with more clicks for A, for B."""
    click: tuple[float, float]
    """Sessions with a click on A's ranking, on B's."""
    click_first: tuple[float, float]


def main(repetitions: int = 2_000, folder: str = "../shared/data/xquad_en") -> None:
    """Print the tables, then hold false winners against what the documentation promises."""
    collection = read_collection(Path(folder))
    queries = [query.text for query in collection.queries]
    bm25 = names(rank_bm25(collection.texts, queries, DEPTH))
    lsi = names(rank_lsi(collection.texts, queries, DEPTH))
    pairs = {
        "LSI against BM25": (lsi, bm25),
        "BM25 without its first chunk on every tenth query, against BM25": (damage(bm25, 10), bm25),
        "BM25 without its first chunk on every fiftieth query, against BM25": (damage(bm25, 50), bm25),
    }
    print("| A against B | test | decided for B | for A | median units |\n|---|---|---|---|---|")
    for title, (a, b) in pairs.items():
        users = simulate_users(a, b, cascade(collection))
        for_a, for_b, median = interleaved(users.prefer, repetitions)
        print(f"| {title} | interleaving | {for_b:.3f} | {for_a:.3f} | {median:,.0f} |", flush=True)
        for name, rates in (("A/B, any click", users.click), ("A/B, first chunk", users.click_first)):
            found = simulate(Design(a=rates[0], b=rates[1], share=0.5), repetitions)
            rate = f"{rates[0]:.3f} and {rates[1]:.3f}"
            print(f"| | {name} ({rate}) | {found.won:.3f} either way | | {found.median:,.0f} |", flush=True)
    print("\n| users who click at random | any winner |\n|---|---|")
    for title, (a, b) in pairs.items():
        users = simulate_users(a, b, at_random)
        for_a, for_b, _ = interleaved(users.prefer, repetitions)
        print(f"| {title}; more clicks for A in {users.prefer[0]:.3f}, B {users.prefer[1]:.3f} | {for_a + for_b:.4f} |")
        assert for_a + for_b <= MOST_FALSE, title


def simulate_users(a: Rankings, b: Rankings, click: Click, *, seed: int = 3) -> Users:
    """Simulate sessions with a random query each: interleaved, and with either ranking alone."""
    random = np.random.default_rng(seed)
    chosen = random.integers(len(a), size=SESSIONS)
    sums, clicked, clicked_first = np.zeros(3), np.zeros(2), np.zeros(2)
    for session, query in enumerate(map(int, chosen)):
        merged = interleave("benchmark", 1, f"session-{session}", a[query], b[query])
        clicks = click([hit.id for hit in merged], query, random)
        teams = [hit.team for hit in merged if hit.id in clicks]
        credit = teams.count(Side.B) - teams.count(Side.A)
        sums[(credit > 0) - (credit < 0) + 1] += 1
        for arm, ranking in enumerate((a[query], b[query])):
            clicks = click(ranking, query, random)
            clicked[arm] += bool(clicks)
            clicked_first[arm] += ranking[0] in clicks
    return Users(
        prefer=(sums[0] / SESSIONS, sums[2] / SESSIONS),
        click=(clicked[0] / SESSIONS, clicked[1] / SESSIONS),
        click_first=(clicked_first[0] / SESSIONS, clicked_first[1] / SESSIONS),
    )


def interleaved(prefer: tuple[float, float], repetitions: int, *, seed: int = 29) -> tuple[float, float, float]:
    """Simulate experiments: share decided for A, for B, and the median number of units, ties counted, until then."""
    random = np.random.default_rng(seed)
    ties = 1 - sum(prefer)
    steps = random.multinomial(STEP, (prefer[0], prefer[1], ties), size=(repetitions, UNITS // STEP)).cumsum(axis=1)
    signs = np.zeros(steps.shape[:2], dtype=np.int64)
    for place in range(repetitions):
        for look, (for_a, for_b, _) in enumerate(steps[place]):
            found = estimate_preference(Preferences(a=int(for_a), b=int(for_b)))
            if found is not None and (found.low > 0 or found.high < 0):
                signs[place, look] = 1 if found.low > 0 else -1
                break
    ended = first(signs != 0)
    decided = ended[ended < UNITS // STEP]
    median = float(np.median((decided + 1) * STEP)) if len(decided) else float("nan")
    return float((signs < 0).any(axis=1).mean()), float((signs > 0).any(axis=1).mean()), median


def cascade(collection: Collection) -> Click:
    """Users of the cascade model."""

    def click(shown: Sequence[str], query: int, random: np.random.Generator) -> list[str]:
        relevant = collection.queries[query].relevant
        clicks: list[str] = []
        chances = random.random((len(shown), 2))
        for hit, (wants, stops) in zip(shown, chances, strict=True):
            is_relevant = int(hit) in relevant
            if wants >= (CLICK_RELEVANT if is_relevant else CLICK_OTHER):
                continue
            clicks.append(hit)
            if is_relevant and stops < STOP:
                break
        return clicks

    return click


def at_random(shown: Sequence[str], _query: int, random: np.random.Generator) -> list[str]:
    """Clicks of users who click each chunk with the same probability, wherever it stands."""
    wants = random.random(len(shown)) < CLICK_OTHER * 2
    return [hit for hit, wanted in zip(shown, wants, strict=True) if wanted]


def names(rankings: Sequence[Sequence[int]]) -> Rankings:
    """Rankings of places as rankings of ids."""
    return [[str(place) for place in ranking] for ranking in rankings]


def damage(rankings: Rankings, every: int) -> Rankings:
    """Rankings without the first chunk on each so many-th query."""
    return [ranking[place % every == 0 :] for place, ranking in enumerate(rankings)]


if __name__ == "__main__":
    given = [int(one) if one.isdigit() else one for one in sys.argv[1:]]
    main(*given)  # type: ignore[arg-type] # mixed types in the order of the usage above
