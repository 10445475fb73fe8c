"""Asks judges: OpenAI-compatible `/v1/chat/completions` at temperature 0; what is asked and meant is decided elsewhere.

Shape: https://platform.openai.com/docs/api-reference/chat/create
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

import msgspec

from app.answers.domain.judges import Judge, JudgeOutcome, JudgeReply
from app.answers.domain.prompts import Prompt
from app.base.values import Outcome
from app.retrievers.client.embeddings import without_surrogates
from app.retrievers.client.endpoints import CallOutcome, EndpointClient

MAX_BODY_BYTES: Final = 1_000_000
"""Of one reply; 4,096 tokens take about 20 kB."""
_FILTERED: Final = "content_filter"


class JudgeCalls:
    """The `AskJudge` for everything that speaks OpenAI's chat completions."""

    def __init__(self, client: EndpointClient) -> None:
        """`client` has the credentials and the limits of all services of the process."""
        self._client = replace(client, max_body_bytes=MAX_BODY_BYTES)

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
