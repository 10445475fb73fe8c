"""Documents of generated answers: a judge, which is a language model that reads answers, and feedback of users."""

from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from app.answers.domain.judges import Judge, Question
from app.base.documents.fields import (
    CanaryKey,
    Document,
    Flag,
    Name,
    Number,
    Seconds,
    Slug,
    Text,
    Url,
    Widget,
    field_errors,
)
from app.base.documents.http_fields import TlsDocument, endpoint_value
from app.retrievers.documents.retrievers import EndpointAuth

TIMEOUT_SECONDS = 60.0


def _chat_url(url: str) -> str:
    """Complete the address of an OpenAI-compatible server: `.../v1` and `.../v1/chat/completions` mean the same."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path.endswith("/chat/completions"):
        return url
    return parts._replace(path=f"{path or '/v1'}/chat/completions").geturl()


class JudgeDocument(Document):
    """A language model behind an OpenAI-compatible `/v1/chat/completions` that is asked about answers.

    What it says counts only as far as people confirm it: until then its measures are marked as uncalibrated.
    """

    slug: Annotated[Slug, Field(title="Name", description="Lower-case letters, digits and hyphens."), Widget(length=64)]
    url: Annotated[
        Url, AfterValidator(_chat_url), Field(title="Chat URL"), Widget(placeholder="http://127.0.0.1:11434/v1")
    ]
    model: Annotated[Name, Field(title="Model"), Widget(placeholder="llama3.1")]
    auth: EndpointAuth | None = None
    tls: TlsDocument | None = None
    timeout: Annotated[Seconds, Field(title="Timeout"), Widget(length=12)] = TIMEOUT_SECONDS
    questions: Annotated[
        tuple[Question, ...],
        Field(title="Questions", description="Each is one call for each new answer.", min_length=1),
    ] = tuple(Question)
    price_per_million: Annotated[
        Annotated[Number, Field(ge=0, le=1_000_000)],
        Field(title="Price of a million tokens", description="In any currency; 0 = costs are not counted."),
        Widget(length=12),
    ] = 0.0
    budget_per_day: Annotated[
        Annotated[Number, Field(gt=0, le=1_000_000_000)] | None,
        Field(title="Budget per day", description="In the same currency, from midnight UTC; empty = no limit."),
        Widget(length=12),
    ] = None

    @field_validator("questions")
    @classmethod
    def _once(cls, questions: tuple[Question, ...]) -> tuple[Question, ...]:
        return tuple(question for question in Question if question in questions)

    @model_validator(mode="after")
    def _has_a_price(self) -> Self:
        if self.budget_per_day is not None and not self.price_per_million:
            raise field_errors([(("budget_per_day",), "needs price_per_million, or no cost could be counted")])
        return self

    def to_domain(self) -> Judge:
        """Return the value the domain works with."""
        return Judge(
            slug=self.slug,
            endpoint=endpoint_value(self.url, auth=self.auth, tls=self.tls, timeout=self.timeout),
            model=self.model,
            questions=self.questions,
            price_per_million=self.price_per_million,
            budget_per_day=self.budget_per_day,
        )


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
