"""A check whose retriever gives texts, with a fake endpoint for answers and a fake judge."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.answers.domain.generated import AnswerRequest, GeneratedAnswer
from app.answers.domain.judges import Judge, JudgeOutcome, JudgeReply, Prompt
from app.answers.service import answering
from app.answers.service.answering import AnswerTools
from app.answers.store import answer_rows as rows
from app.base.db.engine import Store
from app.base.values import Answer, Outcome, replace
from app.retrievers.domain.retrievers import AnswerSource, ProbeQuery
from tests.support.fakes import answered, hits
from tests.support.world import RETRIEVER, World, canary, page

TEXTS = "The notice period is 30 days for all employees."
JUDGE = {"slug": "reader", "url": "http://judge.test/v1", "model": "small", "questions": ["faithful"]}
SOURCE = {
    "url": "http://answers.test/",
    "request": {"question": "{{ query }}", "texts": "{{ contexts }}"},
    "path": "answer",
}


@dataclass(kw_only=True)
class FakeJudge:
    """Says YES to all, or supports an answer as one claim, but for texts in `no`; counts what it is asked."""

    no: set[str] = field(default_factory=set)
    half: set[str] = field(default_factory=set)
    """Texts of whose claims, where it is asked for these, it supports one of two."""
    no_below: int = 0
    """It says NO to answers of fewer characters too."""
    outcome: JudgeOutcome | None = None
    refused: set[str] = field(default_factory=set)
    """Texts about which it answers with an error."""
    asked: list[Prompt] = field(default_factory=list)

    def __call__(self, judge: Judge, prompts: Sequence[Prompt]) -> Iterator[tuple[int, JudgeReply] | None]:
        """Reply, the last prompt first."""
        del judge
        for place, prompt in reversed(list(enumerate(prompts))):
            self.asked.append(prompt)
            yield None
            if self.outcome is not None:
                yield place, JudgeReply(text=None, outcome=self.outcome, detail="it does not want to")
            elif any(text in prompt.user for text in self.refused):
                refused = "the judge answers HTTP 500"
                yield place, JudgeReply(text=None, outcome=JudgeOutcome.JUDGE_REFUSED, detail=refused)
            else:
                answer = prompt.user.rpartition(" answer>>>\n")[0].rpartition(" answer>>>\n")[2]
                is_no = any(text in prompt.user for text in self.no) or len(answer) < self.no_below
                claims = [{"claim": answer, "supported": not is_no}]
                if any(text in prompt.user for text in self.half):
                    claims.append({"claim": f"More: {answer}", "supported": False})
                claim = json.dumps({"claims": claims})
                yield place, JudgeReply(text=claim if prompt.claims else "NO" if is_no else "YES", tokens=100)


@dataclass(kw_only=True)
class FakeAnswers:
    """Answers each query with its text, or with its first context."""

    texts: dict[str, str] = field(default_factory=dict)
    failing: bool = False
    lost: set[str] = field(default_factory=set)
    """Queries to which it gives no answer."""
    asked: list[AnswerRequest] = field(default_factory=list)

    def __call__(
        self, source: AnswerSource, requests: Sequence[AnswerRequest]
    ) -> Iterator[tuple[int, GeneratedAnswer] | None]:
        """Answer, in order."""
        del source
        for place, request in enumerate(requests):
            self.asked.append(request)
            if self.failing or request.query in self.lost:
                yield place, GeneratedAnswer(text=None, outcome=Outcome.TIMEOUT, detail="no answer within 60 s")
            else:
                yield place, GeneratedAnswer(text=self.texts.get(request.query, request.contexts[0]))


@dataclass(kw_only=True)
class Answered:
    """A world whose retriever gives texts, with fakes for answers and judge."""

    world: World
    ask_answers: FakeAnswers = field(default_factory=FakeAnswers)
    judge: FakeJudge = field(default_factory=FakeJudge)

    def run(self) -> int:
        """Run the check, and have its answers judged."""
        run_id = self.world.run().id
        self.rate(run_id)
        return run_id

    def rate(self, run_id: int, *, calls: int | None = None) -> bool:
        """Carry out the job of a run's answers; `calls` = stop when asked so often whether to."""
        tools = AnswerTools(ask_answers=self.ask_answers, ask_judge=self.judge)
        looks = iter(range(10_000))
        return answering.rate_run(
            self.world.store,
            self.world.vault,
            tools,
            run_id,
            clock=self.world.clock,
            stopping=lambda: calls is not None and next(looks) >= calls,
        )

    def measures(self, run_id: int) -> Mapping[str, Any]:
        """Return the measures of a run as people see them."""
        measures: Mapping[str, Any] = self.world.shown(run_id)["measures"]
        return measures

    def summary(self, run_id: int) -> Any:
        """Return what the answers of a run came to."""
        with self.world.store.read() as connection:
            return rows.read_run_answers(connection, [run_id]).get(run_id)


def with_texts(item: ProbeQuery) -> Answer:
    """Answer a query with its chunk and another one."""
    found = hits(f"doc-{item.query}", "noise")
    return answered(replace(found, texts=(f"{TEXTS} This is about {item.query}.", "Nothing else here.")))


def answers_page(keys: Sequence[str], *, source: Mapping[str, Any] | None = SOURCE, **check: Any) -> dict[str, Any]:
    """Describe a check whose answers are judged; without a source they come with the hits."""
    response = {**RETRIEVER["response"], "text": "text", **({} if source else {"answer": "answer"})}
    retriever = {**RETRIEVER, "response": response, **({"answer": dict(source)} if source else {})}
    canaries = [canary(key) for key in keys]
    return {**page(canaries, **{"judge": "reader", **check}), "retrievers": [retriever], "judges": [JUDGE]}


def answered_world(store: Store, document: Mapping[str, Any]) -> Answered:
    """Put a document in force."""
    world = World(store=store)
    world.apply(document)
    world.probe.otherwise = with_texts
    return Answered(world=world)
