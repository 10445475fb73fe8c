"""Judges and answers over HTTP: what is sent, and what every kind of reply comes to."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from app.answers.client import AnswerCalls, JudgeCalls
from app.answers.domain.generated import AnswerRequest, GeneratedAnswer
from app.answers.domain.judges import (
    AnswerToJudge,
    Judge,
    JudgeOutcome,
    JudgeReply,
    Prompt,
    Question,
    build_prompt,
)
from app.base.addresses import Bearer, Endpoint, retriever_policy
from app.base.values import Outcome
from app.config import load_settings
from app.retrievers.client.credentials import Keyring
from app.retrievers.client.endpoint_client import EndpointClient
from app.retrievers.domain.retrievers import AnswerSource
from app.wiring import build_judge_calls
from tests.support.http_servers import HANG, Reply, Seen, peer, reply
from tests.support.proxies import forward_proxy

TOKEN = "sk-secret-token"
JUDGED = AnswerToJudge(query="How long?", contexts=("30 days",), answer="It is 30 days.")
PROMPTS = [build_prompt(question, JUDGED, "a" * 16) for question in (Question.FAITHFUL, Question.FAITHFULNESS)]


def client() -> EndpointClient:
    """Give the client of services, which may reach this machine."""
    policy = retriever_policy()
    return EndpointClient(policy=policy, keyring=Keyring(policy, "coalmine/1.0"), user_agent="coalmine/1.0")


def completion(content: str | None, **more: Any) -> dict[str, Any]:
    """Answer as OpenAI's chat completions do."""
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **more.pop("choice", {})}
    return {"id": "x", "object": "chat.completion", "choices": [choice], "usage": {"total_tokens": 42}, **more}


def said(body: Mapping[str, Any] | bytes, status: int = 200) -> Reply:
    """Reply with a body."""
    return reply(body if isinstance(body, bytes) else json.dumps(body).encode(), status)


def asked(url: str, prompts: list[Prompt], *, timeout: float = 5.0) -> dict[int, JudgeReply]:
    """Ask a judge at an address."""
    endpoint = Endpoint(url=f"{url}/v1/chat/completions", auth=Bearer(token=TOKEN), timeout_seconds=timeout)
    judge = Judge(slug="reader", endpoint=endpoint, model="small")
    return dict(one for one in JudgeCalls(client())(judge, prompts) if one is not None)


def test_a_reply_is_decoded_by_the_declared_charset() -> None:
    body = json.dumps(completion("Très bien."), ensure_ascii=False).encode("latin-1")
    told = reply(body, headers={"content-type": "application/json; charset=iso-8859-1"})
    with peer(told) as judge:
        assert asked(judge.url, PROMPTS[:1])[0].text == "Très bien."


def test_a_judge_is_asked_through_the_proxy_of_the_service() -> None:
    judge = Judge(slug="reader", endpoint=Endpoint(url="https://judge.example/v1", timeout_seconds=5.0), model="small")
    with forward_proxy(refusal=407) as proxy:
        calls = build_judge_calls(load_settings({"COALMINE_PROXY": f"http://127.0.0.1:{proxy.port}"}))
        assert [one for one in calls(judge, PROMPTS[:1]) if one is not None]
    assert set(proxy.targets) == {"judge.example:443"}


def test_a_judge_is_asked_as_openai_is() -> None:
    with peer(lambda _: said(completion("YES"))) as judge:
        assert asked(judge.url, PROMPTS) == {number: JudgeReply(text="YES", tokens=42) for number in (0, 1)}
        sent = {json.loads(seen.body)["max_tokens"]: seen for seen in judge.seen}
    seen = sent[PROMPTS[0].most_tokens]
    body = json.loads(seen.body)
    assert (body["model"], body["temperature"]) == ("small", 0)
    assert [one["role"] for one in body["messages"]] == ["system", "user"]
    assert body["messages"][1]["content"] == PROMPTS[0].user
    assert seen.headers["authorization"] == f"Bearer {TOKEN}"


REFUSED, UNPARSABLE = JudgeOutcome.JUDGE_REFUSED, JudgeOutcome.UNPARSABLE


@pytest.mark.parametrize(
    ("answer", "outcome", "why"),
    [
        (said({"error": {"message": f"bad key {TOKEN}"}}, 401), REFUSED, "401"),
        (said({"error": "pay first"}, 402), REFUSED, "402"),
        (said(b"oops", 500), REFUSED, "500"),
        (said(completion(None, message={"refusal": "I cannot"})), REFUSED, "declined"),
        (said(completion("", choice={"finish_reason": "content_filter"})), REFUSED, "declined"),
        (said(b"<html>"), UNPARSABLE, "not a chat completion"),
        (said({"answer": "YES"}), UNPARSABLE, "not a chat completion"),
        (said({"choices": []}), UNPARSABLE, "no choices"),
    ],
)
def test_what_is_no_reply_says_why_and_keeps_secrets(answer: Reply, outcome: JudgeOutcome, why: str) -> None:
    with peer(answer) as judge:
        [found] = asked(judge.url, PROMPTS[:1]).values()
    assert (found.text, found.outcome) == (None, outcome)
    assert found.detail is not None
    assert why in found.detail
    assert TOKEN not in found.detail
    assert (found.tokens == 0) is why.isdigit(), "a response of an error costs nothing, unlike one that says no tokens"


def test_a_judge_that_is_silent_timed_out() -> None:
    with peer(HANG) as judge:
        [found] = asked(judge.url, PROMPTS[:1], timeout=0.3).values()
    assert found.outcome is JudgeOutcome.JUDGE_TIMEOUT
    assert found.tokens is None, "it may have been worked on, so its tokens are estimated"


def answers(url: str, path: str = "answer.text") -> list[GeneratedAnswer]:
    """Ask for the answers to two queries."""
    source = AnswerSource(
        endpoint=Endpoint(url=url),
        json={"q": "{{ query }}", "texts": "{{ contexts }}", "say": "About {{ query }}"},
        path=path,
    )
    requests = [AnswerRequest(query='a "quoted" one', contexts=("x", "y")), AnswerRequest(query="b", contexts=())]
    found = dict(one for one in AnswerCalls(client())(source, requests) if one is not None)
    return [found[0], found[1]]


def test_an_answer_is_asked_for_with_its_texts_as_a_list() -> None:
    def answer(seen: Seen) -> Reply:
        body = json.loads(seen.body)
        return said({"answer": {"text": f"{body['say']}: {len(body['texts'])}"}})

    with peer(answer) as endpoint:
        found = answers(endpoint.url)
    assert [one.text for one in found] == ['About a "quoted" one: 2', "About b: 0"]


@pytest.mark.parametrize(
    ("reply_", "outcome"),
    [
        (said({"answer": {"text": "   "}}), Outcome.MALFORMED),
        (said({"answer": {"text": 7}}), Outcome.MALFORMED),
        (said({}), Outcome.MALFORMED),
        (said(b"no JSON"), Outcome.MALFORMED),
        (said({}, 503), Outcome.REFUSED),
    ],
)
def test_without_a_text_there_is_no_answer(reply_: Reply, outcome: Outcome) -> None:
    with peer(reply_) as endpoint:
        assert {(one.text, one.outcome) for one in answers(endpoint.url)} == {(None, outcome)}
