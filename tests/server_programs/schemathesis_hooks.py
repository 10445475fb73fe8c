"""What Schemathesis has to know besides the description: names that are there, and that files are texts."""

from typing import Any

import schemathesis
from schemathesis.core.media_types import YAML_MEDIA_TYPES

THERE = {"suite": "docs", "retriever": "search"}
"""What a check of the filled service of the tests may name."""


@schemathesis.deserializer(*YAML_MEDIA_TYPES)  # type: ignore[untyped-decorator] # of another environment
def text_of(_context: Any, response: Any) -> str:
    """Give an answer in YAML as the text that it is: a file may hold several documents."""
    text: str = response.text
    return text


@schemathesis.serializer("application/x-protobuf")  # type: ignore[untyped-decorator] # as above
def sent_as_bytes(_context: Any, value: Any) -> bytes:
    """Give a message of protobuf as bytes, whatever they are: what no exporter would send is refused."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@schemathesis.serializer("application/x-ndjson", "application/jsonl")  # type: ignore[untyped-decorator] # as above
def sent_as_it_is(_context: Any, value: Any) -> bytes:
    """Give a file of JSON lines as the bytes that are sent: the description has it as a text."""
    return str(value).encode("utf-8", "surrogatepass")


@schemathesis.hook  # type: ignore[untyped-decorator] # of another environment
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    """Let a body name what its address names, and a check what is there, or no body would get past its names."""
    names = case.path_parameters
    if not isinstance(case.body, dict) or not names or case.method.upper() != "PUT":
        return
    own = {"slug": names.get("slug") or names.get("suite"), "key": names.get("key")}
    there = THERE if case.path == "/v1/checks/{slug}" else {}
    for name, value in {**own, **there}.items():
        if value is not None and isinstance(case.body.get(name), str):
            case.body[name] = value
