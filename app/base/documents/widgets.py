"""Form controls of the fields of a document: what a form needs beside a field's type, title and description.

It stands at the field: `Annotated[..., Field(title="Reason", description="..."), Widget(...)]`. Forms are made of it by
`app.base.web.document_forms`; a field without one is in no form.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel


class Control(StrEnum):
    """The HTML control of a field."""

    TEXT = "text"
    AREA = "area"
    CHOICE = "choice"
    CHECKBOX = "checkbox"
    CHECKBOXES = "checkboxes"
    ROWS = "rows"
    DATETIME = "datetime-local"
    PASSWORD = "password"  # noqa: S105 - the name of a control
    JSON = "json"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Widget:
    """Control and words of a field; a field that means another thing in another kind of document has several."""

    control: Control | None = None
    """None = what the type suggests."""
    placeholder: str = ""
    length: int = 2048
    """Most characters of the input, where the type has no bound of its own."""
    lines: int = 1
    mono: bool = False
    keeps_spaces: bool = False
    """Whether white space around the value is part of it."""
    separator: str = ": "
    """Between name and value, where the field is a mapping."""
    choices: Mapping[str, str] | None = None
    """Values with the words people read."""
    kinds: tuple[str, ...] = ()
    """Kinds of the document it is for; empty means all kinds."""
    title: str = ""
    """Label in these kinds, instead of the field's title."""
    hint: str = ""
    """Hint in these kinds, instead of the field's description."""
    secret: bool = False
    """Whether the value is a secret: it is never filled in, and kept where nothing is typed."""


def widgets_of(model: type[BaseModel], kind: str = "") -> dict[str, Widget]:
    """Return the widgets of the fields that documents of a kind have, by wire name."""
    return {
        info.alias or name: widget
        for name, info in model.model_fields.items()
        for widget in [one for one in info.metadata if isinstance(one, Widget) and (not one.kinds or kind in one.kinds)]
    }
