"""Judges, tasks of answers and feedback over REST, as docs/answers.md shows them."""

from datetime import UTC, datetime

from app.base.db.engine import Store
from tests.support.labelled_answers import Labelled
from tests.support.pages_service import Site


def test_from_a_task_of_answers_to_the_report_of_the_judge(sqlite_store: Store) -> None:
    labelled = Labelled.of(sqlite_store)
    client = Site(world=labelled.it.world).client()
    answers = {"judge": "reader", "question": "faithful", "count": 20, "window_hours": 24}
    made = client.put("/v1/tasks/labels", json={"suite": "suite", "answers": answers})
    assert made.status_code == 201, made.text
    assert client.put("/v1/tasks/labels", json=made.json()).status_code == 200, "what was read can be sent back"
    assert client.post("/v1/tasks/labels/pool").status_code == 202
    labelled.draw()
    found = client.get("/v1/tasks/labels/next", params={"annotator": "Ann"}).json()
    body = {"grade": 1, "annotator": "Ann"}
    said = client.put(f"/v1/tasks/labels/items/{found['item']['id']}/annotation", json=body)
    assert said.json()["progress"]["graded"] == 1
    [trust] = client.get("/v1/judges/reader/report").json()["measures"]
    assert trust["sentences"] == ["1 new label is counted within a minute."], "no 'people have labelled no answers'"
    clock = labelled.it.world.clock
    clock.advance((datetime.now(UTC) - clock()).total_seconds() + 1)  # the route took the time of this machine
    labelled.label()
    [trust] = client.get("/v1/judges/reader/report").json()["measures"]
    assert not any("new label" in sentence for sentence in trust["sentences"])
    assert (trust["measure"], trust["calibration"]["labels"]) == ("faithful", 20)
    assert client.post("/v1/tasks/labels/adopt").status_code == 409
    assert client.get("/v1/tasks/labels/recall").status_code == 409


def test_feedback_is_taken_and_forgotten(sqlite_store: Store) -> None:
    labelled = Labelled.of(sqlite_store)
    client = Site(world=labelled.it.world).client()
    event = {"event_id": "5f0c", "canary": "q00", "answer": "A lie about q00.", "kind": "thumbs", "positive": False}
    events = [event, {**event, "event_id": "5f0d", "answer": "Another."}]
    sent = client.post("/v1/checks/watch/feedback", json={"events": events})
    assert sent.json() == {"received": 2, "stored": 1, "known": 0, "unmatched": 1}
    assert client.delete("/v1/checks/watch/feedback").json() == {"forgotten": 1}
    assert client.post("/v1/checks/watch/feedback", json={"events": []}).status_code == 422
