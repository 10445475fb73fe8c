"""Feedback of users: joined to the answer it is about, counted once, kept without text, forgotten."""

from datetime import timedelta
from typing import Any

import pytest

from app.answers.documents import FeedbackRequest
from app.answers.service import answering
from app.answers.views import ReceivedFeedback
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError, NotFoundError
from app.operation.service import retention
from tests.support.answered_world import Answered, answered_world, answers_page
from tests.support.pages_service import Site
from tests.support.world import CHECK


@pytest.fixture
def it(store: Store) -> Answered:
    """Give a check with two answers."""
    made = answered_world(store, answers_page(["ant", "bee"]))
    made.ask_answers.texts |= {"ant": "All about ants.", "bee": "All about bees."}
    made.run()
    return made


def event(number: int, **changes: Any) -> dict[str, Any]:
    """Describe a thumb up."""
    first = {"event_id": f"e{number}", "canary": "ant", "answer": "All about ants.", "kind": "thumbs", "positive": True}
    return {**first, **changes}


def send(it: Answered, *events: dict[str, Any]) -> ReceivedFeedback:
    """Send events."""
    sent = parse_document(FeedbackRequest, {"events": list(events)})
    return answering.receive_feedback(it.world.store, CHECK, sent, now=it.world.clock())


def said(it: Answered, run_id: int) -> dict[str, Any]:
    """Give what users said by canary."""
    page = answering.answers_of_run(it.world.store, str(run_id))
    return {one["key"]: one["feedback"] for one in page["items"]}


@pytest.mark.both
def test_feedback_stands_beside_the_answer_it_is_about(it: Answered) -> None:
    sent = send(
        it,
        event(1),
        event(2, positive=False),
        event(3, kind="task_done"),
        event(4, answer="Something else."),
        event(5, canary="wasp"),
    )
    assert sent == {"received": 5, "stored": 3, "known": 0, "unmatched": 2}
    up = {"thumbs_up": 1, "thumbs_down": 1, "task_done": 1, "task_not_done": 0}
    assert said(it, it.run()) == {"ant": up, "bee": None}
    it.ask_answers.texts["ant"] = "A new version."
    newest = it.run()
    assert said(it, newest)["ant"] is None, "it was about another version"
    shown = Site(world=it.world).client().get(f"/runs/{newest - 1}/answers").text
    assert "1 of 2 thumbs up, task done in 1 of 1" in shown


@pytest.mark.both
def test_feedback_of_a_check_is_told_in_all_and_by_canary(it: Answered) -> None:
    def told(**page: Any) -> Any:
        return answering.load_feedback(it.world.store, CHECK, **{"after": "", "limit": 50, **page})

    none = {"thumbs_up": 0, "thumbs_down": 0, "task_done": 0, "task_not_done": 0}
    assert told() == {"total": none, "items": [], "next": None}
    send(it, event(1), event(2, positive=False), event(3, kind="task_done", positive=False))
    it.ask_answers.texts["ant"] = "A new version."
    it.run()
    send(it, event(4, answer="A new version."), event(5, canary="bee", answer="All about bees."))
    ant = {"canary": "ant", "versions": 2, "thumbs_up": 2, "thumbs_down": 1, "task_done": 0, "task_not_done": 1}
    bee = {"canary": "bee", "versions": 1, **none, "thumbs_up": 1}
    total = {"thumbs_up": 3, "thumbs_down": 1, "task_done": 0, "task_not_done": 1}
    assert told() == {"total": total, "items": [ant, bee], "next": None}
    assert told(limit=1) == {"total": total, "items": [ant], "next": "ant"}
    assert told(after="ant", limit=1) == {"total": total, "items": [bee], "next": None}
    with pytest.raises(NotFoundError):
        answering.load_feedback(it.world.store, "none", after="", limit=1)


@pytest.mark.databases
def test_an_event_counts_once_however_often_it_is_sent(it: Answered) -> None:
    assert send(it, event(1), event(1))["stored"] == 1
    again = send(it, event(1, positive=False), event(2))
    assert (again["stored"], again["known"]) == (1, 1)
    assert said(it, it.run())["ant"]["thumbs_up"] == 2


@pytest.mark.both
def test_neither_text_nor_user_is_kept(it: Answered) -> None:
    send(it, event(1))
    with it.world.store.read() as connection:
        columns = set(connection.exec_driver_sql("SELECT * FROM feedback").keys())
    kept = {"id", "check_id", "event_id", "canary_id", "answer_hash", "kind", "positive", "received_at"}
    assert columns == kept


@pytest.mark.both
def test_feedback_is_forgotten_at_once_and_with_age(it: Answered) -> None:
    send(it, event(1), event(2))
    assert answering.forget_feedback(it.world.store, CHECK) == {"forgotten": 2}
    send(it, event(3))
    retention.prune(it.world.store, it.world.clock() + timedelta(days=89), days=90)
    assert it.world.count("feedback") == {"feedback": 1}
    retention.prune(it.world.store, it.world.clock() + timedelta(days=91), days=90)
    assert it.world.count("feedback") == {"feedback": 0}


@pytest.mark.parametrize(
    "change", [{"kind": "stars"}, {"event_id": ""}, {"event_id": "e" * 129}, {"answer": "a" * 20_001}]
)
def test_feedback_without_sense_is_refused(it: Answered, change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        send(it, event(1, **change))
    with pytest.raises(NotFoundError):
        answering.forget_feedback(it.world.store, "nobody")
