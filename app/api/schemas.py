"""Wire-only shapes: what requests carry besides the documents, and the page object of lists."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """No unknown fields; inputs are never repeated in errors."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class RunRequest(Strict):
    """A wish to run a check now."""

    trigger: Literal["api", "update", "cli"] = "api"
    index_version: str | None = Field(default=None, max_length=200)
    wait_seconds: float = Field(default=0, ge=0, le=300)


def page(items: list[Any], following: str | None) -> dict[str, Any]:
    """Shape a page of a list: `next` goes into `after` of the next request; null at the end."""
    return {"items": items, "next": following}
