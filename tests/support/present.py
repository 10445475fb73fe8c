"""What must be there: a value that may be None by its type, and is not by the claim of a test."""

from typing import TypeVar

ValueT = TypeVar("ValueT")


def present(value: ValueT | None) -> ValueT:
    """Give a value back that must not be None."""
    assert value is not None
    return value
