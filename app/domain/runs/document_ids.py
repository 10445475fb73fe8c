"""Explains a coverage of 0 by expected chunk ids that are document ids, as in suites imported from other tools."""

from collections.abc import Iterable

from app.domain.model import Canary, Ranking


def document_ids_remark(coverage: float | None, results: Iterable[tuple[Canary, Ranking]]) -> str | None:
    """Return a remark that expected ids are documents of hits, if coverage is 0 and a tenth of the canaries show it.

    `results`: canaries that expect something, each with what was retrieved for it.
    """
    if coverage is None or coverage > 0:
        return None
    misnamed = total = 0
    for canary, ranking in results:
        ids = {judgment.id for judgment in canary.judgments if judgment.grade >= 1 and judgment.id is not None}
        total += bool(ids)
        misnamed += not ids.isdisjoint(ranking.documents) and ids.isdisjoint(ranking.ids)
    if not misnamed or misnamed < _SHARE * total:
        return None
    return (
        f"the expected ids are documents of the hits for {misnamed} of {total} canaries, not ids of hits: import with "
        "--as-documents, or expect documents"
    )


_SHARE = 0.1
"""Least share of the canaries with expected ids that show it."""
