"""Finds what a run lost although its chunks are there: the texts of changed rankings beside those of before.

The work is for changed rankings alone; what has not changed keeps the reasons it has.
"""

from collections.abc import Sequence
from itertools import islice

from app.base.db.engine import Store
from app.records.store import ranking_rows, recording
from app.runs.service.plans import Plan
from app.runs.service.staging import Gathered
from app.scoring.run_outcomes import RunScores
from app.scoring.tally import MISSING
from app.scoring.text_changes import UNCHANGED, ChangedTexts, TextComparison

_READ_AT_ONCE = 1_000


def find_text_losses(store: Store, plan: Plan, gathered: Gathered, scores: RunScores) -> ChangedTexts:
    """Return how the texts of the same chunks changed; canaries that lose by it become `missing`.

    Each is compared with the newest ranking that was not missing, of the same version of the canary: an edited canary
    is judged anew. Nothing is known of a retriever without texts.
    """
    if plan.inputs.retriever.response.text is None or not gathered.responses.rankings:
        return UNCHANGED
    comparison, k = TextComparison(), plan.inputs.yardstick.k
    places = iter([place for place in gathered.responses.rankings if plan.inputs.panel.expects[place]])
    while block := list(islice(places, _READ_AT_ONCE)):
        references = _references(store, plan, block)
        unread = sorted(set(references.values()) - plan.rankings.keys())
        with store.read() as connection:
            stored = ranking_rows.load_rankings(connection, unread) if unread else {}
        for place, ranking_id in references.items():
            before = stored.get(ranking_id) or plan.rankings.get(ranking_id)
            if before is not None:
                now, match = gathered.responses.rankings[place], scores.results[place].match
                comparison.add(place, plan.inputs.panel.prepared(place), match, before, now, k=k)
    texts = comparison.finish()
    scores.tally.add_lost_texts(texts.lost)
    return texts


def _references(store: Store, plan: Plan, places: Sequence[int]) -> dict[int, int]:
    """Return the rankings to compare with, by position."""
    references: dict[int, int] = {}
    missing: dict[int, int] = {}
    for place in places:
        canary_id, version_id = plan.inputs.canary_ids[place], plan.inputs.version_ids[place]
        held = plan.held.get(canary_id)
        if held is None or held.canary_version_id != version_id:
            continue
        if held.reasons & MISSING:
            missing[canary_id] = place
        else:
            references[place] = held.ranking_id
    if missing:
        with store.read() as connection:
            whole = recording.whole_rankings(connection, plan.run.check_id, list(missing), without=MISSING)
        references |= {
            missing[canary_id]: ranking_id
            for canary_id, (ranking_id, version_id) in whole.items()
            if version_id == plan.inputs.version_ids[missing[canary_id]]
        }
    return references
