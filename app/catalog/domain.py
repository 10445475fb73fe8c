"""Sources of judgments, and recall that is self-judged by them; the measures to read first.

Recall is self-judged where the retriever itself brought up much of what is expected; pooled recall stands beside it.
The use of a check decides which of its measures comes first.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NotRequired

from typing_extensions import TypedDict

from app.base.texts import counted, listed, ratio_text
from app.base.values import Value

JUDGMENT_SOURCE: Final = r"^(task|retriever):[a-z0-9-]{1,64}$"
"""Form of a source: the annotation task that graded a chunk, or the retriever among whose hits it was ticked."""
SELF_JUDGED: Final = "self-judged"
"""Label beside R@k."""
_RECALL: Final = frozenset({"R", "R_id", "R_passage"})


def task_source(slug: str) -> str:
    """Return the source of judgments adopted from a task."""
    return f"task:{slug}"


def retriever_source(slug: str) -> str:
    """Return the source of judgments ticked among the first hits of a retriever."""
    return f"retriever:{slug}"


MOST_OWN: Final = 0.2
"""Share of what is expected that a retriever may have brought up itself before its recall is called self-judged."""


def are_self_judged(shares: Mapping[str, float], own: Collection[str]) -> bool:
    """Whether much of what is expected comes from a retriever's `own` sources: its hits, and tasks that asked it alone.

    `shares`: which share of what is expected comes from which source.
    """
    return sum(share for source, share in shares.items() if source in own) > MOST_OWN


def lone_judges(shares: Mapping[str, float], pools: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Return the retrievers each of which alone brought up much of what is expected, by the shares of the sources.

    `pools`: who alone brought up what a source brings, where that is not the retriever that its name tells: the one
    that a task pooled alone, or what several retrievers ask alike.
    """
    own: dict[str, set[str]] = {}
    for source in shares:
        kind, _, slug = source.partition(":")
        retriever = pools.get(source, slug if kind == "retriever" else None)
        if retriever is not None:
            own.setdefault(retriever, set()).add(source)
    return sorted(retriever for retriever, sources in own.items() if are_self_judged(shares, sources))


_NO_MATTER_OF_ANSWERS: Final = frozenset(
    {
        "slug",
        "concurrency",
        "requests_per_second",
        "timeout",
        "retries",
        "breaker",
        "max_body_bytes",
        "tls",
        "facts",
        "exact",
    }
)
"""Fields of a retriever that say how it is called and asked, and not what it answers."""


def fields_of_answers(fields: Iterable[str]) -> tuple[str, ...]:
    """Return those of the fields of a retriever that matter to what it answers."""
    return tuple(name for name in fields if name not in _NO_MATTER_OF_ANSWERS)


def asked_text(slug: str, body: Mapping[str, Any], *, has_secrets: bool) -> str:
    """Return what a retriever asks as a text, which is the same of two that differ in name alone.

    Of one with stored secrets it is not known whose answers it gets: it is like no other one.
    """
    text = json.dumps({name: body[name] for name in fields_of_answers(body)}, sort_keys=True)
    return f"{slug} {text}" if has_secrets else text


class PooledNote(TypedDict):
    """Pooled recall that stands beside R@k: by the newest task of its suite, a self-judged one only without another."""

    k: int
    value: float
    low: float | None
    high: float | None
    task: str
    assumes: str
    """What value and interval take for granted of the grades, or how they are corrected, in words."""
    self_judged: bool
    """Whether this retriever alone brought up what that task judged, without random texts of a corpus."""
    edited_since: bool
    """Whether the retriever was edited after that task asked it, so that it may find other texts now.

    Beside a run: whether the run asked what it is since then.
    """
    asked_otherwise: NotRequired[bool]
    """Whether the run beside which it stands asked something else than that task, and the retriever does not by now."""
    queries: int | None
    """Number of queries that it rests on: those of the task whose chunks are all graded; null in older alerts."""
    asked_queries: int | None
    """Number of these that canaries of the suite still ask; null in older alerts."""
    few_queries: bool
    """Whether those still asked are fewer than half of the canaries of the suite that expect something."""


EDITED_SINCE: Final = "before the retriever was edited"
"""Said of pooled recall whose retriever was edited after its task asked it."""
ASKED_OTHERWISE: Final = "of what the retriever is, not of what this run asked"
"""Said of pooled recall beside a run that asked something else than its task, and than the retriever asks by now."""
POOLED_FRAME: Final = "a share of the relevant texts of the task when it was pooled, not of the questions of a run"
"""What pooled recall is of, said where coverage stands near: the two have different denominators."""
TAKEN_AS_RIGHT: Final = "every grade is taken as right"
"""What pooled recall assumes where nothing tells how often people err; the reason may follow."""
_IF_RIGHT: Final = "if every grade is right"
"""The same where there is little room."""


def pooled_condition(pooled: Sequence[PooledNote]) -> str:
    """Return what pooled recall holds by alone, `if every grade is right`; "" where it is corrected for wrong grades.

    All of these are of one task.
    """
    # An alert that was opened before this field was stored has none.
    return _IF_RIGHT if any(one.get("assumes", "").startswith(TAKEN_AS_RIGHT) for one in pooled) else ""


def recall_label(
    measure: str, *, self_judged: bool | None, pooled: Sequence[PooledNote] = (), of_part: bool = False
) -> str:
    """Return the label beside recall: `self-judged` where it is, and pooled recall at the same k; "" = none.

    `of_part`: the measure is of a category, and pooled recall is estimated of the whole suite alone.
    """
    if measure.partition("@")[0] not in _RECALL:
        return ""
    parts = [SELF_JUDGED] if self_judged else []
    scope = "pooled over the whole suite" if of_part else "pooled"
    return "; ".join([*parts, *(f"{scope} {pooled_text(one)}" for one in pooled_at(measure, pooled))])


def pooled_at(measure: str, pooled: Sequence[PooledNote]) -> list[PooledNote]:
    """Return the pooled recall at the k of a measure such as `R@5`; none where it is not known."""
    return [one for one in pooled if measure.endswith(f"@{one['k']}")]


def pooled_text(one: PooledNote, *, conditional: bool = True) -> str:
    """Return pooled recall with its 95 % interval, `0.907 (0.851 to 0.952, if every grade is right)`, and its label.

    Where few queries of the suite stand behind it, their number follows: `1.000 (0.625 to 1.000) over 6 queries`, and
    how many of them canaries still ask, unless they ask all.
    Without `conditional` it stands where the condition is said for all of them.
    """
    low, high = one["low"], one["high"]
    interval = "" if low is None or high is None else f"{ratio_text(low)} to {ratio_text(high)}"
    behind = ", ".join(filter(None, (interval, pooled_condition([one]) if conditional else "")))
    text = f"{ratio_text(one['value'])} ({behind})" if behind else ratio_text(one["value"])
    # Alerts of older releases have none of these.
    own, earlier, few = (one.get(name, False) for name in ("self_judged", "edited_since", "few_queries"))
    if few:
        asked, queries = one.get("asked_queries"), one["queries"] or 0
        asked_text = "" if asked in {None, queries} else f", {asked or 'none'} of them still asked"
        text = f"{text} over {counted(queries, 'query')}{asked_text}"
    unlike = [ASKED_OTHERWISE] * bool(one.get("asked_otherwise"))
    return ", ".join([text, *([SELF_JUDGED] * bool(own)), *([EDITED_SINCE] * bool(earlier)), *unlike])


def labelled(
    measure: str, *, self_judged: bool | None, pooled: Sequence[PooledNote] = (), of_part: bool = False
) -> str:
    """Return a measure with its label, `R@5 (self-judged; pooled 0.907 (0.851 to 0.952))`."""
    label = recall_label(measure, self_judged=self_judged, pooled=pooled, of_part=of_part)
    return f"{measure} ({label})" if label else measure


def judgment_lines(
    retriever: str,
    *,
    self_judged: bool | None,
    others: Sequence[str] | None = (),
    judged_before_edit: bool | None = False,
) -> list[str]:
    """Return the sentences on recall by judgments that came from one retriever alone; none by any others.

    The first says what the label means where recall is self-judged; `others` are other retrievers of which it is so.
    `judged_before_edit`: the retriever was edited after it had brought up what is expected.
    """
    own = (
        f"R@k is {SELF_JUDGED}: much of what is expected was brought up by {retriever} itself, so that recall is too "
        "high by whatever it misses; have a pool of several retrievers judged, and read pooled recall beside it"
    )
    if judged_before_edit:
        own = (
            f"R@k is {SELF_JUDGED}, {EDITED_SINCE}: much of what is expected was brought up by {retriever} as it was "
            "then, so whether its recall is too high or too low by now is not known; have a pool of it and others "
            "judged"
        )
    names = listed(others or ())
    other = (
        f"much of what is expected was brought up by {names} alone: what only {retriever} finds may never have been "
        f"judged, so R@k favours retrievers like {names}; have a pool of several retrievers judged"
    )
    return [*([own] if self_judged else []), *([other] if others else [])]


def pooled_lines(retriever: str, k: int, pooled: Sequence[PooledNote]) -> list[str]:
    """Return the sentence on the pooled recall of a retriever at this k; none where it is not known."""
    name = f"pooled recall@{k}"
    return [
        f"{name} of {retriever} is {pooled_text(one, conditional=False)}, by task {one['task']}; {one['assumes']}"
        for one in pooled_at(name, pooled)
    ]


def unlike_tasks_lines(k: int, sides: Mapping[str, Sequence[PooledNote]]) -> list[str]:
    """Return the sentence that the pooled recall of these retrievers at this k is no comparison; none where it is.

    Each task estimates for itself how much is relevant, so only what one task estimates of both is one.
    """
    tasks = {retriever: one["task"] for retriever, notes in sides.items() for one in pooled_at(f"@{k}", notes)}
    if len(set(tasks.values())) < 2:  # noqa: PLR2004 - one task, or one side alone
        return []
    named = listed([f"{task} ({retriever})" for retriever, task in tasks.items()])
    what = f"pooled recall@{k} is by different tasks, {named}, each of which estimates for itself how much is relevant"
    return [f"{what}: do not compare the two, have one task pool both retrievers"]


_DEEP: Final = 10
"""Depth at which NDCG is usually read."""
_TOP_HEAVY: Final = frozenset({"Hit@1", "P@1", "NDCG@1"})
_MRR: Final = "MRR"


class Use(StrEnum):
    """What the chunks that a retriever returns are used for."""

    GENERAL = "general"
    COMPLETENESS = "completeness"
    PRECISION = "precision"
    SINGLE_ANSWER = "single_answer"
    GRADED = "graded"


USE_REASONS: Final[Mapping[Use, str]] = MappingProxyType(
    {
        Use.GENERAL: "it counts how much was found and how early",
        Use.COMPLETENESS: "missing information is costly",
        Use.PRECISION: "the context window is small",
        Use.SINGLE_ANSWER: "one answer is enough",
        Use.GRADED: "relevance is graded and order matters",
    }
)
"""Why the measure of each use comes first."""


class MeasureGuideView(TypedDict):
    """The measure that comes first for a check's use, and the recall that stands beside it."""

    use: Use
    measure: str
    """Comes first in reports and suggested rules."""
    recall: str
    """Stands beside it; the same where recall itself comes first."""
    sentence: str
    """Both and the reason, without a full stop."""


class MeasureGuide(Value):
    """What to read first of a check's runs."""

    use: Use
    measure: str
    recall: str

    @property
    def measures(self) -> tuple[str, ...]:
        """Both measures, each once."""
        return tuple(dict.fromkeys((self.measure, self.recall)))

    @property
    def reason(self) -> str:
        """Why the measure comes first."""
        return USE_REASONS[self.use]

    @property
    def sentence(self) -> str:
        """What comes first and why, without a full stop."""
        beside = "" if self.recall == self.measure else f", {self.recall} beside it"
        return f"{self.measure} comes first{beside}: {self.reason}"

    def body(self) -> MeasureGuideView:
        """Return the view of it."""
        return {"use": self.use, "measure": self.measure, "recall": self.recall, "sentence": self.sentence}


def measure_guide(use: Use, *, k: int, fetch_k: int, cutoffs: Collection[int]) -> MeasureGuide:
    """Return the guide of a check that cuts its measures at k and `cutoffs`."""
    is_deep = fetch_k >= _DEEP and _DEEP in {*cutoffs, k}
    first = {
        Use.GENERAL: f"NDCG@{_DEEP if is_deep else k}",
        Use.COMPLETENESS: f"R@{k}",
        Use.PRECISION: f"P@{k}",
        Use.SINGLE_ANSWER: _MRR,
        Use.GRADED: f"NDCG@{k}",
    }
    return MeasureGuide(use=use, measure=first[use], recall=f"R@{k}")


def is_top_heavy(measure: str, k: int) -> bool:
    """Whether the first good hit decides a measure, so that it can rise while recall falls.

    `measure` is the name of a mean, or `coverage`, which is `Hit@k`.
    """
    name = f"Hit@{k}" if measure == "coverage" else measure
    return name in _TOP_HEAVY or name.partition("@")[0] == _MRR
