"""Requests to the two endpoints of generated answers: the one that answers from retrieved texts, and the judge.

A judge is anything that speaks OpenAI's chat completions.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import msgspec
from jmespath.exceptions import JMESPathError

from app.answers.domain.generated import AnswerRequest, GeneratedAnswer
from app.answers.domain.judges import Judge, JudgeOutcome, JudgeReply, Prompt
from app.base.errors import InvalidInputError, Problem
from app.base.values import Outcome, replace
from app.retrievers.client.answer_fields import Path, parse_json
from app.retrievers.client.compiled_retriever import clean_answer, json_template
from app.retrievers.client.endpoint_client import CallOutcome, EndpointClient
from app.retrievers.client.responses import MalformedError, without_surrogates
from app.retrievers.domain.retrievers import AnswerSource

MAX_BODY_BYTES: Final = 5_000_000
"""Of one answer, with the texts it was made from where the endpoint sends them back."""
NAMES = ("query", "contexts")


class AnswerCalls:
    """The `AskAnswers` for endpoints that take JSON and give JSON."""

    def __init__(self, client: EndpointClient) -> None:
        """`client` has the credentials and the limits of all services of the process."""
        self._client = replace(client, max_body_bytes=MAX_BODY_BYTES)

    def __call__(
        self, source: AnswerSource, requests: Sequence[AnswerRequest]
    ) -> Iterator[tuple[int, GeneratedAnswer] | None]:
        """Ask for answers. Raises InvalidInputError for a source that cannot be used; see `AskAnswers`."""
        try:
            template, path = json_template(source.json, NAMES), Path.of("path", source.path)
        except ValueError as error:
            raise InvalidInputError([Problem(path="answer", message=str(error))]) from None
        bodies = [template.render(query=one.query, contexts=one.contexts) for one in requests]
        with closing(self._client.ask(source.endpoint, bodies)) as calls:
            for call in calls:
                yield None if call is None else (call.number, _read(call, path))


def _read(call: CallOutcome, path: Path) -> GeneratedAnswer:
    if call.problem is not None:
        return GeneratedAnswer(text=None, outcome=call.problem[0], detail=call.problem[1])
    try:
        value: Any = path.search(parse_json(call.body)[0])
    except (MalformedError, JMESPathError, ValueError, TypeError, RecursionError):
        value = None
    text = clean_answer(value)
    if text is None:
        return GeneratedAnswer(text=None, outcome=Outcome.MALFORMED, detail=f"there is no text at path {path.text}")
    return GeneratedAnswer(text=text)


MAX_REPLY_BYTES: Final = 1_000_000
"""Of one reply; 4,096 tokens take about 20 kB."""
_FILTERED: Final = "content_filter"


class JudgeCalls:
    """The `AskJudge` for everything that speaks OpenAI's chat completions."""

    def __init__(self, client: EndpointClient) -> None:
        """`client` has the credentials and the limits of all services of the process."""
        self._client = replace(client, max_body_bytes=MAX_REPLY_BYTES)

    def __call__(self, judge: Judge, prompts: Sequence[Prompt]) -> Iterator[tuple[int, JudgeReply] | None]:
        """Ask a judge. Raises InvalidInputError for an endpoint that cannot be asked; see `AskJudge`."""
        bodies = [_body(judge, prompt) for prompt in prompts]
        with closing(self._client.ask(judge.endpoint, bodies)) as calls:
            for call in calls:
                yield None if call is None else (call.number, read_reply(call))


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message
    finish_reason: str | None = None


class _Usage(msgspec.Struct, gc=False):
    total_tokens: int | None = None


class _Completion(msgspec.Struct, gc=False):
    choices: list[_Choice]
    usage: _Usage | None = None


def read_reply(call: CallOutcome) -> JudgeReply:
    """Return the reply in a response, or why there is none."""
    if call.problem is not None:
        outcome, detail = call.problem
        timed_out = outcome is Outcome.TIMEOUT
        return JudgeReply(
            text=None,
            outcome=JudgeOutcome.JUDGE_TIMEOUT if timed_out else JudgeOutcome.JUDGE_REFUSED,
            detail=f"the judge {detail}" if call.http_status is not None else detail,
            tokens=None if timed_out else 0,  # what times out may have been worked on
        )
    try:
        completion = _COMPLETION.decode(call.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return JudgeReply(
            text=None, outcome=JudgeOutcome.UNPARSABLE, detail="the response is not a chat completion; check the url"
        )
    tokens = None if completion.usage is None else completion.usage.total_tokens
    if not completion.choices:
        return JudgeReply(
            text=None, outcome=JudgeOutcome.UNPARSABLE, detail="the response has no choices", tokens=tokens
        )
    choice = completion.choices[0]
    if choice.message.refusal or choice.finish_reason == _FILTERED:
        return JudgeReply(
            text=None, outcome=JudgeOutcome.JUDGE_REFUSED, detail="the model declined to answer", tokens=tokens
        )
    return JudgeReply(text=choice.message.content or "", tokens=tokens)


def _body(judge: Judge, prompt: Prompt) -> bytes:
    messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
    return msgspec.json.encode(
        {
            "model": judge.model,
            "temperature": 0,
            "max_tokens": prompt.most_tokens,
            "messages": [{**one, "content": without_surrogates(one["content"])} for one in messages],
        }
    )


_COMPLETION: Final = msgspec.json.Decoder(_Completion)
