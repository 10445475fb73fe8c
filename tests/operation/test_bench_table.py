"""The table of `make bench`: what stands in it, and nothing about how fast anything is."""

from collections.abc import Iterator

import pytest

from benchmarks import bench, throughput
from benchmarks.bench import FIGURES, PARTS, Figure, Goal, Measured, ratios, shown_number, shown_values, table
from benchmarks.processes import NotInstalledError

SPEED = Figure("speed", "runs against aiohttp", Goal(2.5, "x", at_least=True))
SIZE = Figure("size", "a result stored", Goal(4, "bytes"))


def test_a_ratio_is_that_of_its_own_round() -> None:
    assert ratios([20, 5], [10, 10]) == [2.0, 0.5]  # the ratio of the medians would be 1.25 for both
    with pytest.raises(ValueError, match="longer"):
        ratios([20], [10, 10])


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.02143, "0.021"), (0.9999, "1.000"), (1.567, "1.57"), (34.21, "34.2"), (1390.4, "1,390"), (-150.2, "-150")],
)
def test_a_number_has_three_digits(value: float, shown: str) -> None:
    assert shown_number(value) == shown


def test_values_show_their_median_and_their_extremes() -> None:
    assert shown_values([3.0, 1.0, 2.5], "x") == "2.50 x (1.00 to 3.00, 3)"
    assert shown_values([291.7], "bytes") == "292 bytes (1)"


@pytest.mark.parametrize(
    ("figure", "median", "verdict"),
    [(SPEED, 2.5, "met"), (SPEED, 2.49, "MISSED"), (SIZE, 4.0, "met"), (SIZE, 4.01, "MISSED")],
)
def test_a_goal_is_held_against_the_median(figure: Figure, median: float, verdict: str) -> None:
    row = _rows(table([figure], {figure.key: Measured([0.0, median, 100.0])}))[0]
    assert row[3] == verdict


def test_every_figure_has_a_row_and_what_was_not_measured_says_why() -> None:
    found = {"speed": Measured((), "wrk is not installed", load=0.34)}
    speed, size = _rows(table([SPEED, SIZE], found))
    assert speed == ["runs against aiohttp", ">= 2.5 x", "not measured", "", "wrk is not installed", "0.3"]
    assert size == ["a result stored", "<= 4 bytes", "not measured", "", "no time left", ""]


def test_columns_of_the_table_are_aligned() -> None:
    lines = table([SPEED, SIZE], {"speed": Measured([1.0, 2.0], "aiohttp 6,066/s")}).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert set(lines[1]) == {"|", "-"}


def test_every_part_has_figures_of_its_own_and_all_end_within_a_quarter_of_an_hour() -> None:
    keys = [figure.key for figures in FIGURES.values() for figure in figures]
    assert list(FIGURES) == list(PARTS)
    assert len(set(keys)) == len(keys)
    assert sum(part.seconds for part in PARTS.values()) <= 15 * 60


def test_a_peer_that_is_not_installed_is_said_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_canaries: int) -> Iterator[None]:
        raise NotInstalledError("prometheus-blackbox-exporter")

    monkeypatch.setattr(bench, "stub", _nothing)
    monkeypatch.setattr(bench, "opened", _nothing)
    monkeypatch.setattr(bench, "settled_run", lambda _planner: 0.1)
    monkeypatch.setattr(throughput, "httpx_seconds", lambda _canaries: 2.0)
    monkeypatch.setattr(throughput, "promptfoo_seconds", lambda _canaries: 30.0)
    monkeypatch.setattr(throughput, "blackbox", missing)
    found = dict(PARTS["peers"].measure())
    assert found["blackbox"] == Measured((), "prometheus-blackbox-exporter is not installed")
    assert list(found["httpx"].values) == pytest.approx([20.0] * 5)
    assert list(found["promptfoo"].values) == pytest.approx([300.0] * 2)


def test_a_part_that_ends_with_an_error_says_it_in_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "FIGURES", {"unknown": (SPEED,)})
    monkeypatch.setattr(bench, "PARTS", {"unknown": PARTS["scoring"]})
    found = bench.part("unknown")  # the process of the part knows no such name
    assert not found["speed"].values
    assert "invalid choice: 'unknown'" in found["speed"].beside


def test_the_last_word_of_a_part_is_not_an_empty_line() -> None:
    assert bench._last_line(["Traceback", "RuntimeError: no gcc", "", " "]) == "RuntimeError: no gcc"
    assert bench._last_line([]) == "it gave no figure"


class _nothing:  # noqa: N801 - stands for functions
    """A context that gives nothing."""

    def __init__(self, *_given: object) -> None:
        """Take anything."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *_error: object) -> None:
        """End."""


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
