"""The layouts of a run: what the numbers of its vectors are, stored once for all runs that have the same."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.base.db.engine import Connection
from app.records.store import recording
from app.scoring.measures import MEASURES_VERSION
from app.scoring.run_inputs import RunInputs


class RunLayouts(NamedTuple):
    """The ids of the layouts of a run."""

    scores: int
    """Of the vector of a result: its measures by the yardstick of the run."""
    aggregates: int
    """Of the vector of the run."""


def find_layouts(connection: Connection, inputs: RunInputs) -> RunLayouts | None:
    """Layouts of a run; None where one is not stored yet."""
    ids = [recording.find_layout_id(connection, *layout) for layout in _layouts(inputs)]
    stored = [one for one in ids if one is not None]
    return RunLayouts(*stored) if len(stored) == len(ids) else None


def save_layouts(connection: Connection, inputs: RunInputs) -> RunLayouts:
    """Layouts of a run, stored where they are new."""
    return RunLayouts(*(recording.layout_id(connection, *layout) for layout in _layouts(inputs)))


def _layouts(inputs: RunInputs) -> Iterator[tuple[Sequence[str], str, str]]:
    """Give names, version of the measures and yardstick of each layout."""
    yield [str(measure) for measure in inputs.yardstick.measures], MEASURES_VERSION, str(inputs.yardstick)
    yield inputs.vector_names, MEASURES_VERSION, ""
