"""Embedding quality: whether the embedder of a retriever gives similar texts closer vectors than dissimilar ones."""

from typing import Final

from app.base.values import EmbedderChange, Outcome
from app.diagnosis.quality.domain.evidence import Example, Mark, Section, unknown
from app.retrievers.domain.views import StoredFinding

NAME: Final = "embedding_quality"
NARROW: Final = 0.1
"""Least difference between mean similar and mean dissimilar pairs that suffices for ranking."""
_SAME_MODEL = {EmbedderChange.SAME, EmbedderChange.DRIFTED}


def embedding_quality(finding: StoredFinding | None) -> Section:
    """Section on the embedder's finding of the newest run: `outcome, kind, reason, pairs`.

    Good where the model is the one it was, and every similar pair is closer than every dissimilar one, by more than a
    cosine of 0.1 on average. None = no embedder was asked.
    """
    if finding is None:
        return unknown(NAME, "the newest run asked no embedder: where the retriever has one, it is not known here")
    if finding["outcome"] != Outcome.OK or not finding["pairs"]:
        return unknown(NAME, "the embedder did not answer in the newest run")
    similar = sorted((pair["cosine"], pair["key"]) for pair in finding["pairs"] if pair["similar"])
    dissimilar = sorted((pair["cosine"], pair["key"]) for pair in finding["pairs"] if not pair["similar"])
    if not similar or not dissimilar:
        return unknown(NAME, "the embedder's canaries are not both similar and dissimilar pairs")
    gap = _mean(similar) - _mean(dissimilar)
    confused = [one for one in dissimilar[::-1] if one[0] >= similar[0][0]]
    numbers: dict[str, float | int | None] = {
        "similar_pairs": len(similar),
        "dissimilar_pairs": len(dissimilar),
        "similar_mean_cosine": _mean(similar),
        "similar_lowest_cosine": similar[0][0],
        "dissimilar_mean_cosine": _mean(dissimilar),
        "dissimilar_highest_cosine": dissimilar[-1][0],
        "separation": gap,
    }
    examples = [
        Example(
            note=f"a dissimilar pair with cosine {cosine:.2f}, the least similar has {similar[0][0]:.2f}", canary=key
        )
        for cosine, key in confused
    ]
    reason, advice = _judged(finding["kind"], gap, confused=len(confused))
    mark = Mark.GOOD if advice is None else Mark.REVIEW
    return Section(name=NAME, mark=mark, reason=reason, numbers=numbers, examples=examples, advice=advice)


def _judged(kind: EmbedderChange | None, gap: float, *, confused: int) -> tuple[str, str | None]:
    if kind not in _SAME_MODEL:
        note = f"the embedder is not the one it was ({kind})"
        return note, "Embed queries and documents with one model: bring the old one back, or embed the documents again."
    if confused:
        note = "a dissimilar pair is closer than a similar one"
        return note, "Try an embedder that knows your language and domain, or the prefixes that this one expects."
    if gap <= NARROW:
        note = f"similar pairs are closer than dissimilar ones by a cosine of only {gap:.2f}"
        return note, "Check pooling, prefixes and normalisation: nearly equal vectors leave little to rank by."
    return f"similar pairs are closer than dissimilar ones by a cosine of {gap:.2f}", None


def _mean(pairs: list[tuple[float, str]]) -> float:
    return sum(cosine for cosine, _ in pairs) / len(pairs)
