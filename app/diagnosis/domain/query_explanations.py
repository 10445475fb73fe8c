"""One query looked at closely: why each hit matches or not, how near the expected chunks are, and where scores fall.

Whether a hit matches is decided by `scoring.rankings`, as in a run; here it is said why. Near misses are told by the
share of an expected text that a hit holds (Broder's containment, as in a diagnosis), which matching does not decide by.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from typing_extensions import TypedDict

from app.base.texts import number, percent_text, plain, ratio_text, shorten
from app.base.values import Canary, Judgment, Level, Outcome, Ranking, Reason, TimeText, Value, Verdict
from app.index_facts.domain import recall_against
from app.records.views import JudgmentView, ResultView, first_expected, judgment_shape, why_degraded, wrong_field
from app.scoring.rankings import LEVELS, Match, match, prepare
from app.scoring.words import containment, grams, split_by_overlap

NEAR_MISS: Final = 0.3
"""The least share of an expected text that makes a hit without it a near miss.

Of 400 sentences of the demo's corpus the most that another text had was 0.286, and 0.125 in 19 of 20.
"""
_NAMED = 60
_LACKING_PARTS = 3
_GONE = 5


class TextShare(TypedDict):
    """How much of an expected text a hit holds."""

    rank: int
    id: str
    share: float
    """Of its word 3-grams, in [0, 1]."""
    lacking: list[str]
    """The first parts of the expected text that the hit does not have."""


class ExplainedHit(TypedDict):
    """A hit, and why it matches what is expected or not."""

    rank: int
    id: str
    document: str | None
    text: str | None
    score: float | None
    relevance: float | None
    judgment: JudgmentView | None
    level: Level | None
    grade: int | None
    share: float | None
    """The largest share of an expected text that the hit holds; null where no text can be compared."""
    forbidden: bool
    rank_before: int | None
    gap: float | None
    """How far its score is from that of the next hit; null of the last, and where either has none."""
    why: str
    """A sentence without its full stop."""


class ExplainedChunk(TypedDict):
    """An expected chunk, and where it came."""

    judgment: JudgmentView
    rank: int | None
    """In the answer as the check asks for it, else in the deeper one; null = in neither."""
    level: Level | None
    rank_before: int | None
    nearest: TextShare | None
    """The hit that holds most of its text, where none has it."""
    why: str


class ScoreGap(TypedDict):
    """The difference of the scores of two neighbours."""

    after_rank: int
    size: float
    scores: list[float]
    """Of the hit at that rank, and of the next."""


class ScoreGaps(TypedDict):
    """Where the scores of an answer fall."""

    at_k: ScoreGap | None
    """Between rank k and the next: how firmly the last hit that counts stands."""
    largest: ScoreGap | None
    """Null where all scores are the same."""
    expected_below: float | None
    """How far the score of the best expected chunk below k is from that of rank k."""


class AnswerBefore(TypedDict):
    """An earlier answer to the same query."""

    source: str
    at: TimeText | None
    verdict: Verdict | None
    gone: list[str]
    """Chunks of its top k that this answer does not have."""


class ExactComparison(TypedDict):
    """The answer against that of an exact search."""

    found: int
    """Hits of the exact search that count."""
    returned: int
    """How many of them the index returned."""
    missed: list[str]
    """The ids of the others, in their order."""
    expected_missed: list[str]
    """Those of them that are expected."""
    detail: str | None
    """Why exact search says nothing; null = it was answered."""


class QueryExplanation(TypedDict):
    """One query, what came, what was expected, and why the verdict is what it is."""

    query: str
    vars: dict[str, str]
    """As whom it was asked: values of options of the retriever, of the canary, else of its check, else the defaults."""
    key: str | None
    """Of the canary whose question it is; null = no canary has it."""
    check: str
    suite: str
    retriever: str
    k: int
    fetch_k: int
    depth: int | None
    """Number of hits of the second, deeper request; null = none was needed."""
    expected_by: str
    """`canary`, `options` of the command, or `nothing`."""
    outcome: Outcome
    detail: str | None
    latency_seconds: float | None
    verdict: Verdict
    reasons: list[Reason]
    why: list[str]
    """Sentences without full stops."""
    measures: dict[str, float | None]
    forbidden_chunks: int
    """How many it forbids; they are looked for in all hits that are asked for."""
    hits: list[ExplainedHit]
    expected: list[ExplainedChunk]
    gaps: ScoreGaps
    before: AnswerBefore | None
    exact: ExactComparison | None
    """What an exact search finds of which the index returned; null = none was asked."""


class Earlier(Value):
    """An earlier answer to the same query; its documents and texts are None where only ids are known."""

    ranking: Ranking
    source: str
    at: TimeText | None
    verdict: Verdict | None


class Explained(Value):
    """What an explanation is made of: an answer that was judged as in a run, and what stands beside it."""

    canary: Canary
    k: int
    result: ResultView
    ranking: Ranking | None
    """The answer as the check asks for it; None = it could not be measured."""
    deep: Ranking | None = None
    """The answer to the same query with more hits."""
    before: Earlier | None = None
    has_texts: bool = True
    """Whether the retriever's mapping reads texts."""


def compare_exactly(one: Explained, exact: Ranking | None, why: str | None) -> ExactComparison:
    """Compare an answer with that of an exact search, by the first k of each; `why`: why there is none."""
    if exact is None or one.ranking is None:
        detail = why or "there is no answer to compare with"
        return {"found": 0, "returned": 0, "missed": [], "expected_missed": [], "detail": detail}
    wanted = list(exact.ids[: one.k])
    share = recall_against(one.ranking, exact, one.k)
    found = frozenset(one.ranking.ids[: one.k])
    missed = [chunk for chunk in wanted if chunk not in found] if share is not None and share < 1 else []
    first = match(prepare(one.canary.judgments), exact)
    ranks = zip(one.canary.judgments, first.first, strict=True)
    expected = {exact.ids[rank - 1] for judged, rank in ranks if judged.grade >= 1 and rank is not None}
    return {
        "found": len(wanted),
        "returned": len(wanted) if share is None else round(share * len(wanted)),
        "missed": missed,
        "expected_missed": [chunk for chunk in missed if chunk in expected],
        "detail": None,
    }


def needs_deeper(canary: Canary, ranking: Ranking) -> bool:
    """Whether an answer lacks a chunk that is expected, so that a deeper one may show it."""
    first = match(prepare(canary.judgments), ranking).first
    found = zip(canary.judgments, first, strict=True)
    return not canary.negative and any(one.grade >= 1 and rank is None for one, rank in found)


def verdict_sentences(canary: Canary, result: ResultView) -> list[str]:
    """Return why the verdict of a query is what it is, in sentences without full stops."""
    if result["verdict"] == Verdict.UNKNOWN:
        return [result["detail"] or f"it could not be measured: {result['outcome']}".replace("_", " ")]
    if result["verdict"] == Verdict.DEGRADED:
        return why_degraded(result)
    rank, k, top = first_expected(result), result["k"], result["top_score"]
    sentences = []
    if canary.expects and rank is not None:
        sentences.append(f"an expected chunk is at rank {rank}, within the top {k}")
    elif canary.negative and not canary.expect_empty:
        most = result["max_relevance_score"]
        relevance = (
            "no relevance was measured" if top is None else f"relevance {ratio_text(top, most)} is below {most:g}"
        )
        sentences.append(f"no good answer exists, and none looks good: {relevance}")
    elif canary.expect_empty:
        sentences.append("nothing was returned, as expected")
    else:
        sentences.append("nothing is expected of it, so only its relevance and limits are judged")
    if top is not None and not canary.negative and not canary.expect_empty:
        least = result["min_relevance_score"]
        sentences.append(f"relevance {ratio_text(top, least)} is at least its minimum {least:g}")
    if canary.forbidden:
        sentences.append("none of its forbidden chunks was returned")
    sentences += [
        f"{name} {number(value)} is at least its floor {floor:g}"
        for name, floor in canary.floors.items()
        if (value := result["measures"].get(name)) is not None
    ]
    return sentences


def explain_hits(one: Explained) -> list[ExplainedHit]:
    """Return the hits of the answer, each with a sentence on why it matches what is expected or not."""
    if one.ranking is None:
        return []
    judged = match(prepare(one.canary.judgments), one.ranking)
    forbidden = match(prepare(one.canary.forbidden, verbatim=True), one.ranking)
    before = {} if one.before is None else _ranks_by_id(one.before.ranking)
    gaps = {gap["after_rank"]: gap["size"] for gap in _gaps(one.ranking.scores)}
    return [
        {
            "rank": hit["rank"],
            "id": hit["id"],
            "document": hit["document"],
            "text": hit["text"],
            "score": hit["score"],
            "relevance": hit["relevance"],
            "judgment": hit["judgment"],
            "level": hit["level"],
            "grade": hit["grade"],
            "share": max((share for _, share in _shares(one.canary, hit["text"])), default=None),
            "forbidden": one.canary.expect_empty or forbidden.judgment[place] >= 0,
            "rank_before": before.get(hit["id"]),
            "gap": gaps.get(hit["rank"]),
            "why": _why_hit(one, judged, forbidden, place),
        }
        for place, hit in enumerate(one.result["ranking"])
    ]


def _ranks_by_id(ranking: Ranking) -> dict[str, int]:
    return {chunk: rank for rank, chunk in enumerate(ranking.ids, start=1)}


def _shares(canary: Canary, text: str | None) -> Iterator[tuple[Judgment, float]]:
    """Yield the expected texts with the share of each that a text holds, rounded; the same for all who show it."""
    for judgment in canary.judgments:
        if judgment.grade >= 1 and judgment.text and text and grams(judgment.text):
            yield judgment, round(containment(judgment.text, text), 3)


def _why_hit(one: Explained, judged: Match, forbidden: Match, place: int) -> str:
    ranking, canary = one.ranking, one.canary
    assert ranking is not None  # noqa: S101 - the caller checks
    banned = forbidden.judgment[place]
    if canary.expect_empty or banned >= 0:
        if banned < 0:
            return "must not be returned: nothing may be"
        return f"must not be returned: forbidden {_by(forbidden.levels[place], canary.forbidden[banned])}"
    level, text = judged.levels[place], ranking.texts[place]
    if level is not None:
        return _why_matched(canary.judgments[judged.judgment[place]], judged, place, text)
    if not any(judgment.grade >= 1 for judgment in canary.judgments):
        return "nothing is expected of this query"
    nearest = max(_shares(canary, text), key=lambda pair: pair[1], default=None)
    return _why_not_matched(canary, text, None if nearest is None or nearest[1] < NEAR_MISS else nearest)


def _why_not_matched(canary: Canary, text: str | None, nearest: tuple[Judgment, float] | None) -> str:
    if nearest is not None:
        judgment, share = nearest
        return f"near miss: {_held(share)} of the expected text{_lacks(judgment.text or '', text or '')}"
    if not text and any(judgment.text for judgment in canary.judgments):
        return "not expected by name, and has no text to compare"
    return "not expected"


def _why_matched(judgment: Judgment, judged: Match, place: int, text: str | None) -> str:
    level, rank = judged.levels[place], place + 1
    if judgment.grade == 0:
        return f"known to be irrelevant: judged {_by(level, judgment)}"
    first = judged.first[judged.judgment[place]]
    again = f", as rank {first} did already" if first is not None and first < rank else ""
    if level is Level.PASSAGE and judgment.text and text:
        share = round(containment(judgment.text, text), 3)
        return f"expected: holds the passage ({_held(share)} of its words in threes){again}"
    return f"expected {_by(level, judgment)}{again}"


def _by(level: Level | None, judgment: Judgment) -> str:
    """Say by what a chunk was recognised."""
    if level is Level.ID:
        return "by its id"
    if level is Level.DOCUMENT:
        return f"by its document {shorten(str(judgment.document), _NAMED)}"
    return "by its text, which is equal" if level is Level.TEXT else "by a passage that it holds"


def _held(share: float) -> str:
    return percent_text(share)


def _lacks(expected: str, text: str) -> str:
    """Say what a text lacks of an expected one, in quotation marks."""
    parts = _lacking(expected, text)
    return f"; lacks {', '.join(f'“{part}”' for part in parts)}" if parts else ", but not in one piece"


def _lacking(expected: str, text: str) -> list[str]:
    split = [shorten(part, _NAMED) for part, is_common in split_by_overlap(expected, text) if not is_common]
    return [part for part in split if part.strip(" .,;:")][:_LACKING_PARTS]


def explain_expected(one: Explained) -> list[ExplainedChunk]:
    """Return the expected chunks of the query, each with a sentence on where it came; none of a negative canary."""
    if one.canary.negative or one.ranking is None:
        return []
    answers = [answer for answer in (one.ranking, one.deep) if answer is not None]
    matches = [match(prepare(one.canary.judgments), answer) for answer in answers]
    earlier = None if one.before is None else match(prepare(one.canary.judgments), one.before.ranking)
    chunks: list[ExplainedChunk] = []
    for index, judgment in enumerate(one.canary.judgments):
        if judgment.grade < 1:
            continue
        place = next((at for at, found in enumerate(matches) if found.first[index] is not None), None)
        rank = None if place is None else matches[place].first[index]
        nearest = _nearest(one, judgment, answers) if rank is None else None
        before = None if earlier is None else earlier.first[index]
        chunks.append(
            {
                "judgment": judgment_shape(judgment),
                "rank": rank,
                "level": None if place is None else LEVELS[matches[place].first_level[index] - 1],
                "rank_before": before,
                "nearest": nearest,
                "why": _why_chunk(one, judgment, rank, nearest, is_deep=place == 1),
            }
        )
    return chunks


def _why_chunk(
    one: Explained, judgment: Judgment, rank: int | None, nearest: TextShare | None, *, is_deep: bool
) -> str:
    depth = max(len(answer) for answer in (one.ranking, one.deep) if answer is not None)
    if rank is not None and rank <= one.k:
        return f"at rank {rank}, within the top {one.k}"
    if rank is not None:
        asked = f", of the {depth} hits of a deeper request" if is_deep else ""
        return f"at rank {rank}, below the top {one.k}{asked}"
    if nearest is not None:
        return f"{_absent(depth)}; rank {nearest['rank']} holds {_held(nearest['share'])} of its text" + (
            f", and lacks {', '.join(f'“{part}”' for part in nearest['lacking'])}" if nearest["lacking"] else ""
        )
    if judgment.text and not one.has_texts:
        return "cannot be recognised: the retriever's response maps no text"
    wrong = wrong_field(one.result)
    told = "" if wrong is None else f"; {wrong[0].lower()}{wrong[1:]}"
    return f"{_absent(depth)}{told}"


def _absent(depth: int) -> str:
    """Say that a chunk is in none of so many hits."""
    if depth == 0:
        return "nothing was returned"
    return "not the one hit" if depth == 1 else f"in none of the {depth:,} hits"


def _nearest(one: Explained, judgment: Judgment, answers: Sequence[Ranking]) -> TextShare | None:
    """Return the hit that holds most of an expected text, or of the text that its id had before; None = hardly any."""
    expected = judgment.text or _text_before(one.before, judgment)
    if not expected or not grams(expected):
        return None
    deepest = answers[-1]
    shares = [(containment(expected, text), place) for place, text in enumerate(deepest.texts) if text]
    share, place = max(shares, key=lambda pair: (pair[0], -pair[1]), default=(0.0, 0))
    if share < NEAR_MISS:
        return None
    text = deepest.texts[place] or ""
    return {
        "rank": place + 1,
        "id": deepest.ids[place],
        "share": round(share, 3),
        "lacking": _lacking(expected, text),
    }


def _text_before(before: Earlier | None, judgment: Judgment) -> str | None:
    if before is None or judgment.id not in before.ranking.ids:
        return None
    return before.ranking.texts[before.ranking.ids.index(judgment.id)]


def score_gaps(one: Explained, chunks: Sequence[Mapping[str, Any]]) -> ScoreGaps:
    """Return where the scores fall: after rank k, and most of all; and what the best expected chunk below k lacks."""
    if one.ranking is None:
        return {"at_k": None, "largest": None, "expected_below": None}
    answer = one.deep if one.deep is not None and len(one.deep) > len(one.ranking) else one.ranking
    gaps = _gaps(one.ranking.scores)
    within = [chunk["rank"] for chunk in chunks if chunk["rank"] is not None]
    below = min(within, default=0)
    expected_below = None
    if below > one.k and len(answer) >= below:
        last, found = answer.scores[one.k - 1], answer.scores[below - 1]
        expected_below = None if last is None or found is None else round(abs(last - found), 6)
    return {
        "at_k": next((gap for gap in _gaps(answer.scores) if gap["after_rank"] == one.k), None),
        "largest": max(
            (gap for gap in gaps if gap["size"]), key=lambda gap: (gap["size"], -gap["after_rank"]), default=None
        ),
        "expected_below": expected_below,
    }


def _gaps(scores: Sequence[float | None]) -> list[ScoreGap]:
    pairs = enumerate(pairwise(scores), start=1)
    return [
        {"after_rank": rank, "size": round(abs(score - following), 6), "scores": [score, following]}
        for rank, (score, following) in pairs
        if score is not None and following is not None
    ]


def earlier_view(one: Explained) -> AnswerBefore | None:
    """Return the earlier answer, with the chunks of its top k that are not in this one; None where there is none."""
    if one.before is None:
        return None
    now = set() if one.ranking is None else set(one.ranking.ids)
    gone = [chunk for chunk in one.before.ranking.ids[: one.k] if chunk not in now]
    return {
        "source": one.before.source,
        "at": one.before.at,
        "verdict": one.before.verdict,
        "gone": [plain(chunk) for chunk in gone[:_GONE]],
    }
