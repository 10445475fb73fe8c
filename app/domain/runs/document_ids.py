"""Expected ids that are documents of hits: why a suite from files of another tool finds nothing at all.

What a run found is matching's to say; this only explains a coverage of 0.
"""

from collections.abc import Iterable

from app.domain.model import Canary, Ranking


def expects_documents(canary: Canary, ranking: Ranking) -> bool | None:
    """Whether a canary expects documents of the hits as if they were ids of hits; None = it expects no ids."""
    ids = {judgment.id for judgment in canary.judgments if judgment.grade >= 1 and judgment.id is not None}
    return not ids.isdisjoint(ranking.documents) and ids.isdisjoint(ranking.ids) if ids else None


def document_ids_remark(coverage: float | None, canaries: Iterable[bool | None]) -> str | None:
    """Say that expected ids are documents of the hits, where no canary finds any and those of a tenth are.

    `canaries`: `expects_documents` of each that expects something.
    """
    if coverage is None or coverage > 0:
        return None
    known = [one for one in canaries if one is not None]
    misnamed, total = sum(known), len(known)
    if not misnamed or misnamed < _SHARE * total:
        return None
    return (
        f"the expected ids are documents of the hits for {misnamed} of {total} canaries, not ids of hits: import with "
        "--as-documents, or expect documents"
    )


_SHARE = 0.1
"""Of the canaries that expect ids; where retrieval works at all, some of the documents are among the hits."""
