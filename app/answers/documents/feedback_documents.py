"""What users said of answers, as it is sent."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from app.base.documents.fields import CanaryKey, Document, Flag, Text

_MOST_EVENTS = 1_000
_LONGEST_ANSWER = 20_000


class FeedbackKind(StrEnum):
    """What was said: a thumb up or down, or whether the user got done what they came for."""

    THUMBS = "thumbs"
    TASK_DONE = "task_done"


class FeedbackEvent(Document):
    """What one user said of one answer to a canary; `event_id` is the sender's, and counts once."""

    event_id: Annotated[Text, StringConstraints(max_length=128)]
    canary: CanaryKey
    answer: Annotated[Text, StringConstraints(max_length=_LONGEST_ANSWER)]
    """The answer as it was shown; only its hash is kept."""
    kind: FeedbackKind
    positive: Flag


class FeedbackRequest(Document):
    """Feedback of users, up to 1,000 events."""

    events: Annotated[tuple[FeedbackEvent, ...], Field(min_length=1, max_length=_MOST_EVENTS)]
