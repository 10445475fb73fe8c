"""Documents of promotions, and the reason for which a gate is waived."""

from typing import Annotated

from pydantic import StringConstraints

from app.base.documents.fields import Document, Slug, Text


class PromotionDocument(Document):
    """A candidate on its way to all users: the checks of it and of what is current, and the experiment with users.

    The first arm of the experiment is what is current, the second one the candidate.
    """

    slug: Slug
    current: Slug
    candidate: Slug
    experiment: Slug | None = None


class WaiverRequest(Document):
    """Why to go on without a gate."""

    reason: Annotated[Text, StringConstraints(max_length=500)]
