"""Reads pasted responses as if the retriever had sent them; sends nothing."""

from app.adapters.probing.request_templates import compile_reader
from app.adapters.probing.responses import read_answer
from app.adapters.wire import Response
from app.domain.errors import InvalidInputError, Problem
from app.domain.model import Answer
from app.domain.probing.retrievers import Retriever


def read_pasted(retriever: Retriever, k: int, body: bytes) -> Answer:
    """Read a response body by the retriever's mapping; raises InvalidInputError for a mapping that is none."""
    try:
        reader = compile_reader(retriever, k)
    except ValueError as error:
        raise InvalidInputError([Problem(path="response", message=str(error))]) from None
    return read_answer(Response(status=200, body=body), reader)
