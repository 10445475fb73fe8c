"""Feedback of users: joined to the versions of answers that a check has seen, and kept without text or user."""

from datetime import datetime

from app.answers.documents.feedback_documents import FeedbackRequest
from app.answers.domain.views import ForgottenFeedback, ReceivedFeedback
from app.answers.store import feedback as rows
from app.answers.store.answers import digest
from app.answers.store.feedback import UserEvent
from app.base.db.engine import Store, to_us
from app.catalog.service.lookup import find_check
from app.catalog.store import definitions


def receive_feedback(store: Store, slug: str, sent: FeedbackRequest, *, now: datetime) -> ReceivedFeedback:
    """Store what users said of answers that a check has seen, each event once. Raises NotFoundError.

    Events about another answer or an unknown canary are counted and not stored.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        suite = definitions.find_definition(connection, "suite", check.body["suite"])
        keys = {} if suite is None else rows.canaries_by_key(connection, suite.id, {one.canary for one in sent.events})
        known = rows.known_answers(connection, check.id, set(keys.values()))
    events = [
        UserEvent(
            event_id=one.event_id,
            canary_id=keys[one.canary],
            answer=one.answer,
            kind=str(one.kind),
            positive=one.positive,
        )
        for one in sent.events
        if one.canary in keys and (keys[one.canary], digest(one.answer)) in known
    ]
    with store.write() as connection:
        stored = rows.save_events(connection, check.id, events, at=to_us(now))
    return {
        "received": len(sent.events),
        "stored": stored,
        "known": len(events) - stored,
        "unmatched": len(sent.events) - len(events),
    }


def forget_feedback(store: Store, slug: str) -> ForgottenFeedback:
    """Delete all feedback about a check. Raises NotFoundError."""
    with store.write() as connection:
        return {"forgotten": rows.forget_feedback(connection, find_check(connection, slug).id)}
