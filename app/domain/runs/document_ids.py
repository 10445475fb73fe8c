"""Expected ids that are documents of hits: why a suite from files of another tool finds nothing at all.

What a run found is matching's to say; this only explains a coverage of 0.
"""

from collections.abc import Iterable

from app.domain.model import Canary, Ranking


def document_ids_remark(coverage: float | None, results: Iterable[tuple[Canary, Ranking]]) -> str | None:
    """Say that expected ids are documents of the hits, where no canary finds any and those of a tenth are.

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
"""Of the canaries that expect ids; where retrieval works at all, some of the documents are among the hits."""
