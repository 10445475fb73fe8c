"""Mean measures of canaries, packed: what rules that compare with a baseline compare with."""

import zlib
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.base.db.engine import Connection
from app.catalog.service.run_inputs import load_yardstick
from app.catalog.store import suites
from app.detection.service.detectors import EndingRun
from app.records.store.results import RunRow
from app.records.store.state_spans import SpanQuery, read_state_spans
from app.scoring.drops import Column
from app.scoring.measures import MEASURES_VERSION

Floats = NDArray[np.float64]


class Means(msgspec.Struct, array_like=True, frozen=True):
    """Mean measures by canary version: the bytes are little-endian int64 and (N, M) float32."""

    versions: bytes
    names: list[str]
    means: bytes
    k: int
    measures_version: str

    def column_of(self, version_ids: Sequence[int]) -> Column:
        """Give the means of these canaries by the name of a measure; NaN = it is not among them."""
        table = np.frombuffer(self.means, dtype="<f4").reshape(-1, len(self.names))
        place_of = {version: place for place, version in enumerate(np.frombuffer(self.versions, dtype="<i8").tolist())}
        places = np.array([place_of.get(version, -1) for version in version_ids], dtype=np.intp)

        def column(name: str) -> Floats:
            values = np.full(len(places), np.nan)
            if name in self.names:
                values[places >= 0] = table[places[places >= 0], self.names.index(name)]
            return values

        return column


def unpack_means(body: bytes) -> Means | None:
    """Read what was packed; None = nothing was."""
    return msgspec.msgpack.decode(zlib.decompress(body), type=Means) if body else None


def means_of_runs(connection: Connection, run: EndingRun, run_ids: Sequence[int]) -> bytes:
    """Average every measure of the watched canaries over these runs, the one that is about to end maybe among them."""
    inputs = run.inputs
    names = [str(measure) for measure in inputs.yardstick.measures]
    selection = SpanQuery(version_ids=[int(key) for key in inputs.watched.keys], k=inputs.yardstick.k, names=names)
    stored = [run_id for run_id in run_ids if run_id != run.id]
    sums, counts = read_state_spans(connection, run.check_id, stored, selection).sums()
    if len(stored) < len(run_ids):
        current = run.tally.scores(names)[inputs.panel.watched]
        sums += np.nan_to_num(current)
        counts += ~np.isnan(current)
    return _packed(selection, sums, counts)


def means_of_run(connection: Connection, run: RunRow) -> bytes:
    """Give what every canary of an ended run had, whose definitions are known, so that it outlives the run."""
    if run.versions is None:
        raise ValueError(f"Run {run.id} says not by which definitions it was judged.")
    yardstick = load_yardstick(connection, run.versions.check, run.versions.retriever)
    version_ids = [version_id for _, version_id in suites.members_of(connection, run.versions.suite)]
    names = [str(measure) for measure in yardstick.measures]
    selection = SpanQuery(version_ids=version_ids, k=yardstick.k, names=names)
    return _packed(selection, *read_state_spans(connection, run.check_id, [run.id], selection).sums())


def _packed(selection: SpanQuery, sums: Floats, counts: Floats) -> bytes:
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    packed = Means(
        versions=np.array(selection.version_ids, dtype="<i8").tobytes(),
        names=list(selection.names),
        means=means.astype("<f4").tobytes(),
        k=selection.k,
        measures_version=MEASURES_VERSION,
    )
    return zlib.compress(msgspec.msgpack.encode(packed), 1)
