"""What of a suite can be judged by a run file, which holds names and scores: neither texts nor documents nor times."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from app.base.counts import counted
from app.base.errors import InvalidInputError, Problem
from app.catalog.documents.canary_documents import CanaryDocument
from app.retrievers.documents.embedding_documents import ScorerDocument
from app.retrievers.domain.retrievers import ScorerKind
from app.runs.service.gate import Target


def judged_by_rank(
    targets: Sequence[Target], topics: Collection[str], *, file: str, as_documents: bool
) -> tuple[tuple[Target, ...], list[str]]:
    """Reduce targets to what a run over these topics can answer; gives them and what was left out, in sentences.

    The run's names are chunk ids or, `as_documents`, documents. Nothing that cannot be judged may look healthy or
    missing: such canaries are left out. Raises InvalidInputError where none of the topics is a canary's key.
    """
    lost: Counter[str] = Counter()
    judged, keys, absent = [], set(), 0
    for target in targets:
        canaries = target.suite.canaries or ()
        keys |= {canary.key for canary in canaries}
        if not any(canary.key in topics for canary in canaries):
            continue  # the run is of another suite
        judgeable = [
            one for canary in canaries if (one := _by_name(canary, lost, as_documents=as_documents)) is not None
        ]
        if judgeable:
            absent += sum(one.key not in topics for one in judgeable)
            suite = target.suite.model_copy(update={"canaries": tuple(judgeable)})
            scorer = ScorerDocument(kind=ScorerKind.JUDGED)  # its scores mean nothing to the retriever's scale
            retriever = target.retriever.model_copy(update={"scorer": scorer})
            judged.append(replace(target, suite=suite, retriever=retriever))
    if not judged:
        example = next(iter(topics), "")[:60]
        message = (
            f"no canary can be judged by it: its topics, such as '{example}', must be keys of canaries that expect ids"
        )
        raise InvalidInputError([Problem(message=message, file=file)])
    strangers = len(set(topics) - keys)
    notes = [f"{counted(count, 'canary')}: {what}" for what, count in lost.items()]
    if absent:
        total = sum(len(target.suite.canaries or ()) for target in judged)
        notes.insert(0, f"{absent:,} of {counted(total, 'canary')}: not a topic of the run, counted as nothing found")
    return tuple(judged), notes + (
        [f"{counted(strangers, 'topic')} of the run: no canary has it for its key"] if strangers else []
    )


def _by_name(canary: CanaryDocument, lost: Counter[str], *, as_documents: bool) -> CanaryDocument | None:
    """Reduce a canary to what names can answer; None where nothing is left of it."""
    identity = "document" if as_documents else "id"
    blank: dict[str, None] = {"id": None, "document": None, "text": None}

    def named(chunks: Sequence[Any]) -> tuple[Any, ...]:
        named_chunks = [chunk for chunk in chunks if getattr(chunk, identity) is not None]
        return tuple(
            chunk.model_copy(update={**blank, identity: getattr(chunk, identity)})
            for chunk in dict.fromkeys(named_chunks)
        )

    expected, forbidden = named(canary.expected_chunks), named(canary.forbidden_chunks)
    if len(forbidden) < len(canary.forbidden_chunks):
        lost[f"forbids chunks by other than {identity}, which was not judged"] += 1
    if canary.max_age is not None or canary.max_latency is not None:
        lost["limits age or latency, which was not judged"] += 1
    if canary.expected_chunks and not expected:
        lost[f"expects nothing by {identity}, left out"] += 1
        return None
    if not expected and not forbidden and not canary.expect_empty:
        lost["has nothing that ranks could answer, left out"] += 1
        return None
    return canary.model_copy(
        update={"expected_chunks": expected, "forbidden_chunks": forbidden, "max_age": None, "max_latency": None}
    )
