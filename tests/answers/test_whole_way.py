"""Answers the whole way, judged over HTTP: every end of a question to a judge, and evidence with changed numbers."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from app.answers.client import JudgeCalls
from app.answers.service import answering, labels
from app.answers.service.answering import AnswerTools, rate_run
from app.base.db.engine import Store
from app.demo import answering as demo
from app.demo.corpus import read_corpus
from tests.answers.test_judge_calls import client, completion, said
from tests.support.answered_world import JUDGE, Answered, answered_world, answers_page
from tests.support.fakes import answered, hits
from tests.support.http_servers import HANG, Reply, Seen, peer
from tests.support.labelled_answers import Labelled
from tests.support.present import present

_NUMBER = re.compile(r"\d+")


def judged(it: Answered) -> Any:
    """Run the check, its answers judged over HTTP; gives the page of its answers."""
    run_id = it.world.run().id
    tools = AnswerTools(ask_answers=it.ask_answers, ask_judge=JudgeCalls(client()))
    rate_run(it.world.store, it.world.vault, tools, run_id, clock=it.world.clock)
    assert it.world.shown(run_id)["verdict"] == "healthy", "it is no failure of retrieval"
    return answering.answers_of_run(it.world.store, str(run_id))


def document(url: str, keys: list[str], **judge: Any) -> dict[str, Any]:
    """Describe a check with a judge at an address."""
    return {**answers_page(keys), "judges": [{**JUDGE, "url": f"{url}/v1", **judge}]}


@pytest.mark.parametrize(
    ("reply", "change", "outcome"),
    [
        (lambda _: said({"error": "pay first"}, 402), {}, "judge_refused"),
        (lambda _: HANG, {"timeout": 0.3}, "judge_timeout"),
        (lambda _: said(completion(None, choice={"finish_reason": "content_filter"})), {}, "judge_refused"),
        (lambda _: said(completion("Maybe so.")), {}, "unparsable"),
        (lambda _: said(completion("YES")), {"price_per_million": 1e6, "budget_per_day": 1e-6}, "over_budget"),
        (lambda _: said(completion("YES")), {}, "ok"),
    ],
)
def test_each_end_of_a_question_is_its_outcome(
    sqlite_store: Store, reply: Callable[[Seen], Reply], change: dict[str, Any], outcome: str
) -> None:
    with peer(reply) as judge:
        it = answered_world(sqlite_store, document(judge.url, ["ant", "bee"], **change))
        page = judged(it)
    summary = present(page["summary"])
    assert summary["ratings"] == {"faithful": {outcome: 2}}
    assert summary["measures"]["faithful"] == (1 if outcome == "ok" else None)
    assert {one["ratings"]["faithful"]["outcome"] for one in page["items"]} == {outcome}


def test_evidence_with_changed_numbers_is_found_out_as_often_as_the_judge_can(sqlite_store: Store) -> None:
    chunks = [chunk for chunk in read_corpus(None) if _NUMBER.search(chunk.text)]
    texts = {f"q{number:03}": chunk.text for number, chunk in enumerate(chunks * 2)}
    lies = {key for place, key in enumerate(texts) if place % 4 == 0}

    def reply(seen: Seen) -> Reply:
        messages = json.loads(seen.body)["messages"]
        return said(completion(demo.judge_answer("\n".join(one["content"] for one in messages))))

    with peer(reply) as judge:
        it = answered_world(sqlite_store, document(judge.url, list(texts)))
        it.world.probe.otherwise = lambda item: answered(
            hits(f"doc-{item.query}", texts={f"doc-{item.query}": texts[item.query]})
        )
        changed = {key: _NUMBER.sub(lambda found: str(int(found[0]) + 3), texts[key]) for key in lies}
        it.ask_answers.texts |= {**texts, **changed}
        judged(it)
        labelled = Labelled(it=it, lies=lies)
        labelled.put(answers={"judge": "reader", "question": "faithful", "count": 150})
        labelled.draw()
    labelled.label()
    [trust] = labels.load_report(sqlite_store, "reader", now=it.world.clock())["measures"]
    found = present(trust["calibration"])
    assert found["calibrated"], found["reason"]
    assert found["sensitivity"]["low"] <= demo.SENSITIVITY <= found["sensitivity"]["high"]
    assert found["specificity"]["low"] <= demo.SPECIFICITY <= found["specificity"]["high"]
    assert found["rate"]["low"] <= 1 - len(lies) / len(texts) <= found["rate"]["high"]
