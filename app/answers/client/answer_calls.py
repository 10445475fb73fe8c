"""Asks the endpoint that answers a query from retrieved texts."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from jmespath.exceptions import JMESPathError

from app.answers.domain.judges import AnswerRequest, GeneratedAnswer
from app.base.errors import InvalidInputError, Problem
from app.base.values import Outcome
from app.retrievers.client.endpoints import CallOutcome, EndpointClient
from app.retrievers.client.hit_columns import parse_json
from app.retrievers.client.jmespath_paths import MalformedError, Path
from app.retrievers.client.response_mapping import clean_answer
from app.retrievers.client.templates import json_template
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
