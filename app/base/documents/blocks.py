"""Long lists validated block by block: other threads go on in between, and a list that is all wrong ends early."""

from functools import cache
from typing import Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from app.base.documents.fields import MOST_PROBLEMS, Document

_BLOCK = 500


def in_blocks(model: type[Document]) -> BeforeValidator:
    """Give the validator of a list of documents, to stand before the list's own.

    Its items come out validated. Of a list with many problems only those of the first blocks are told.
    """

    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) <= _BLOCK:
            return value
        valid: list[Document] = []
        wrong: list[InitErrorDetails] = []
        for start in range(0, len(value), _BLOCK):
            try:
                valid += _adapter(model).validate_python(list(value[start : start + _BLOCK]))
            except ValidationError as error:
                wrong += [_moved(one, start) for one in error.errors(include_url=False)]
            if len(wrong) > MOST_PROBLEMS:
                break
        if wrong:
            raise ValidationError.from_exception_data("list", wrong)
        return valid

    return BeforeValidator(check)


@cache
def _adapter(model: type[Document]) -> TypeAdapter[Any]:
    return TypeAdapter(list[model])  # type: ignore[valid-type] # a variable, which mypy takes for no type


def _moved(error: ErrorDetails, start: int) -> InitErrorDetails:
    """Say an error of a block with its place in the whole list."""
    position, *within = error["loc"]
    kind: Any = error["type"]
    context = error.get("ctx", {})
    if kind == "invalid":  # ours: see fields.field_error
        kind = PydanticCustomError("invalid", "{message}", {"message": error["msg"]})
    return InitErrorDetails(type=kind, loc=(start + int(position), *within), input=error["input"], ctx=context)
