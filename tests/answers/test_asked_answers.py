"""Answers to canaries that ask within a conversation, or as somebody: what the judge and people who label see."""

from typing import Any

import pytest

from app.annotation.service import annotations
from app.answers.service import answering
from app.base.db.engine import Store
from tests.support.answered_world import Answered, answered_world, answers_page
from tests.support.labelled_answers import Labelled
from tests.support.present import present
from tests.support.world import canary

COST = "And what does that cost?"
TURNS = {
    "shipping": [{"role": "user", "content": "Do you ship to Iceland?"}],
    "returns": [{"role": "user", "content": "Can I return a gift?"}],
}
CANARIES = [
    *(canary(key, query=COST, history=turns) for key, turns in TURNS.items()),
    canary("acme", query="Who signs?", vars={"tenant": "acme"}),
    canary("plain", query="Who pays?"),
]


def asked_world(store: Store, canaries: list[dict[str, Any]] = CANARIES) -> Answered:
    """Give a check over these canaries that has run once."""
    it = answered_world(store, {**answers_page([]), "canaries": canaries})
    it.run()
    return it


def wordings(it: Answered, run_id: int) -> dict[str, str]:
    """Give by canary the wording by which its answer was rated."""
    found = answering.answers_of_run(it.world.store, str(run_id))["items"]
    return {one["key"]: one["ratings"]["faithful"].get("wording", "") for one in found}


def test_the_judge_reads_each_query_with_its_conversation(sqlite_store: Store) -> None:
    it = asked_world(sqlite_store)
    prompts = [prompt.user for prompt in it.judge.asked]
    assert len(prompts) == 4, "one query and one answer in two conversations are asked about twice"
    for text in ("user: Do you ship to Iceland?", "user: Can I return a gift?", "tenant: acme"):
        assert sum(text in prompt for prompt in prompts) == 1
    asked, alone = "faithful-1+asked", "faithful-1"
    again = it.run()
    assert wordings(it, again) == {"shipping": asked, "returns": asked, "acme": asked, "plain": alone}
    assert len(it.judge.asked) == 4, "unchanged answers are asked about once"


def test_padded_copies_are_judged_with_the_conversation_too(sqlite_store: Store) -> None:
    it = asked_world(sqlite_store)
    labelled = Labelled(it=it)
    labelled.put()
    labelled.draw()
    prompts = [prompt.user for prompt in it.judge.asked[4:]]
    assert len(prompts) == 4
    for text in ("user: Do you ship to Iceland?", "user: Can I return a gift?", "tenant: acme"):
        assert sum(text in prompt for prompt in prompts) == 1


@pytest.mark.both
def test_who_labels_an_answer_sees_the_conversation_that_it_is_of(store: Store) -> None:
    it = asked_world(store)
    labelled = Labelled(it=it)
    labelled.put()
    labelled.draw()
    edited = [canary("plain", query="Who pays?", vars={"tenant": "globex"}), *CANARIES[:3]]
    it.world.apply({**answers_page([]), "canaries": edited})
    seen: list[Any] = []
    found = annotations.next_item(store, "labels", annotator="Ann", now=it.world.clock())
    while found["item"] is not None:
        item = present(found["item"])
        seen.append((item["query"], item["vars"], item["history"]))
        found = annotations.annotate(store, "labels", item["id"], annotator="Ann", grade=1, now=it.world.clock())
    assert sorted(map(repr, seen)) == sorted(
        map(
            repr,
            [
                *((COST, {}, turns) for turns in TURNS.values()),
                ("Who signs?", {"tenant": "acme"}, []),
                ("Who pays?", {}, []),
            ],
        )
    )


def test_answers_rated_without_their_conversation_are_not_drawn(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_before(question: str, **_: bool) -> str:
        return f"{question}-1"

    with monkeypatch.context() as earlier:
        earlier.setattr(answering, "wording_of", as_before)
        it = asked_world(sqlite_store)
    labelled = Labelled(it=it)
    labelled.put()
    labelled.draw()
    found = annotations.next_item(sqlite_store, "labels", annotator="Ann", now=it.world.clock())
    assert (present(found["item"])["query"], found["following"]) == ("Who pays?", None)
