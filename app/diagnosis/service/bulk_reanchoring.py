"""Bulk diagnosis, from rows alone, of canaries whose chunks were re-cut, re-indexed or renamed.

Where the stored rankings do not suffice, `diagnoses` asks the retriever.
"""

from typing import Final

from app.base.db.engine import Connection
from app.base.values import Cause
from app.diagnosis.domain.causes import classify
from app.diagnosis.domain.run_causes import RunCause
from app.diagnosis.domain.values import Case, Diagnosis
from app.diagnosis.service.cases import Subject
from app.diagnosis.store import diagnoses
from app.records.store import canary_states, results
from app.records.store.results import RunRow
from app.scoring.run_inputs import RunInputs

MOST: Final = 500
"""Canaries per run; the others follow after later runs."""
EXAMINED: Final = 1_000
"""Canaries examined per run: a suite of 10,000 must not occupy a worker for a minute after each run."""


def diagnose_renamed(
    connection: Connection, run: RunRow, inputs: RunInputs, cause: RunCause
) -> list[tuple[Subject, Diagnosis]]:
    """Diagnose the canaries of a run that retrieved an expected text under another name, except diagnosed ones.

    Includes healthy canaries with a judgment to be re-anchored.
    """
    _, failures = results.probes_of(connection, run.id)
    places = [place for place in range(len(inputs.canary_ids)) if inputs.panel.expects[place] and place not in failures]
    canary_ids = [inputs.canary_ids[place] for place in places]
    before = canary_states.rankings_at(connection, run.check_id, cause.before_run, canary_ids)
    now = canary_states.rankings_at(connection, run.check_id, run.id, canary_ids)
    newest = diagnoses.newest_diagnoses(connection, run.check_id, canary_ids)
    degraded = {inputs.canary_ids[place] for place in run.degraded_places}
    left = [
        place
        for place in places
        if (canary_id := inputs.canary_ids[place]) in before
        and canary_id in now
        and before[canary_id][0] != now[canary_id][0]
        and not _is_diagnosed(newest.get(canary_id), now[canary_id])
    ]
    diagnosed: list[tuple[Subject, Diagnosis]] = []
    start = run.id * EXAMINED % max(len(left), 1)  # another part of them after each run
    for place in (left[start:] + left[:start])[:EXAMINED]:
        canary_id = inputs.canary_ids[place]
        pair = results.read_rankings(connection, [before[canary_id][0], now[canary_id][0]])
        case = Case(
            canary=inputs.canaries[place],
            k=inputs.yardstick.k,
            fetch_k=inputs.yardstick.fetch_k,
            now=pair[now[canary_id][0]],
            healthy=pair[before[canary_id][0]],
            ever_passed=True,
            renamed=True,
        )
        diagnosis = classify(case, (), ())
        if diagnosis.cause is Cause.RECHUNKED and (diagnosis.reanchors or canary_id in degraded):
            ranking_id, version_id = now[canary_id]
            diagnosed.append(
                (Subject(canary_id=canary_id, version_id=version_id, ranking_id=ranking_id, case=case), diagnosis)
            )
        if len(diagnosed) == MOST:
            break
    return diagnosed


def _is_diagnosed(last: diagnoses.DiagnosisRow | None, now: tuple[int, int]) -> bool:
    """Whether this very answer was diagnosed as re-cut already."""
    return last is not None and last.cause == Cause.RECHUNKED and (last.ranking_id, last.canary_version_id) == now
