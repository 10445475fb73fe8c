"""Drafted queries for those whose users have no log: a model reads texts of a corpus and proposes what they answer.

They are proposals: nothing is stored but what the calls cost. The judge's own budget of the day is kept.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from app.answers.domain.drafting import Draft, build_draft_prompt, read_draft
from app.answers.domain.judges import AskJudge, JudgeOutcome
from app.answers.service.judges import load_judge
from app.answers.service.judging import BLOCK, collect_replies, count_affordable, judge_day
from app.answers.store import ratings
from app.base.db.engine import Store
from app.base.errors import NotFoundError
from app.catalog.service.vault import Vault


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftedQueries:
    """Drafted queries with the id of the text that each answers, in the order of drawing, and how all calls ended."""

    queries: Sequence[tuple[str, str]]
    outcomes: Mapping[JudgeOutcome, int]
    repeated: int
    """Queries that were drafted before, in other letters or not."""
    details: Sequence[str]
    """Reasons of calls that brought no query, each once."""


def draft_queries(
    store: Store,
    vault: Vault,
    ask: AskJudge,
    slug: str,
    texts: Sequence[tuple[str, str]],
    *,
    number: int,
    seed: int,
    clock: Callable[[], datetime],
) -> DraftedQueries:
    """Draw texts, (id, text) each, and have a query drafted for each. Raises NotFoundError without the judge.

    What is drawn depends on `seed` alone. Ends where the rest of the day's budget pays for no more.
    """
    with store.read() as connection:
        judge_id, judge = load_judge(connection, vault, slug)
    if judge_id is None or judge is None:
        raise NotFoundError(f"there is no judge '{slug}'")
    places = np.random.default_rng(seed).permutation(len(texts))[:number]
    drawn = [texts[int(place)] for place in places]
    drafts: list[tuple[str, Draft]] = []
    for start in range(0, len(drawn), BLOCK):
        block = drawn[start : start + BLOCK]
        prompts = [build_draft_prompt(text, secrets.token_hex(8)) for _, text in block]
        affordable = count_affordable(store, judge, judge_id, prompts, clock())
        replies = collect_replies(ask, judge, prompts[:affordable], lambda: False)
        read = {place: read_draft(reply) for place, reply in sorted(replies.items())}
        drafts += [(block[place][0], draft) for place, draft in read.items()]
        now = clock()
        with store.write() as connection:
            day = judge_day(judge, prompts, replies, [one.outcome for one in read.values()], now)
            ratings.add_to_day(connection, judge_id, day)
        if affordable < len(prompts):
            over = Draft(
                query=None,
                outcome=JudgeOutcome.OVER_BUDGET,
                detail=f"the budget of judge '{slug}' for today is used up",
            )
            drafts += [(name, over) for name, _ in drawn[start + affordable :]]
            break
    return _sum_up(drafts)


def _sum_up(drafts: Sequence[tuple[str, Draft]]) -> DraftedQueries:
    queries = [(draft.query, name) for name, draft in drafts if draft.query is not None]
    first = {query.casefold(): (query, name) for query, name in reversed(queries)}
    return DraftedQueries(
        queries=[one for one in queries if first[one[0].casefold()] == one],
        outcomes=Counter(draft.outcome for _, draft in drafts),
        repeated=len(queries) - len(first),
        details=list(dict.fromkeys(draft.detail for _, draft in drafts if draft.detail is not None)),
    )
