"""Reads pasted responses as if the retriever had sent them; sends nothing."""

from app.base.errors import InvalidInputError, Problem
from app.base.net.wire import Response
from app.base.values import Answer
from app.retrievers.client.request_templates import compile_reader
from app.retrievers.client.responses import read_answer
from app.retrievers.domain.retrievers import Retriever


def read_pasted(retriever: Retriever, k: int, body: bytes) -> Answer:
    """Read a response body by the retriever's mapping; raises InvalidInputError for a mapping that is none."""
    try:
        reader = compile_reader(retriever, k)
    except ValueError as error:
        raise InvalidInputError([Problem(path="response", message=str(error))]) from None
    return read_answer(Response(status=200, body=body), reader)
