"""Values: immutable, equal by their fields, and silent about secrets."""

import pickle
from collections.abc import Iterator

import pytest
from rich.pretty import pretty_repr

import app.main  # noqa: F401 - all classes are loaded
from app.base.addresses import ApiKey, Bearer, Endpoint
from app.base.values import Confidential, Turn, Value, asdict, replace

HUSH = "hush-hush"


def _confidential(kind: type[Confidential] = Confidential) -> Iterator[type[Confidential]]:
    for one in kind.__subclasses__():
        yield one
        yield from _confidential(one)


def test_a_value_is_immutable_and_takes_its_fields_by_name() -> None:
    turn = Turn(role="user", content="hello")
    with pytest.raises(AttributeError, match="immutable"):
        turn.role = "assistant"  # type: ignore[misc] # what is tried
    with pytest.raises(TypeError, match="positional"):
        Turn("user", "hello")  # type: ignore[call-arg] # what is tried
    assert turn == pickle.loads(pickle.dumps(turn))  # noqa: S301 - our own
    assert len({turn, Turn(role="user", content="hello")}) == 1


def test_a_changed_copy_has_no_field_that_the_value_has_not() -> None:
    turn = Turn(role="user", content="hello")
    assert asdict(replace(turn, content="bye")) == {"role": "user", "content": "bye"}
    with pytest.raises(TypeError, match="unknown"):
        replace(turn, unknown=1)  # type: ignore[call-arg] # what is tried


def test_values_of_two_classes_differ() -> None:
    class Same(Value):
        role: str
        content: str

    same: Value = Same(role="user", content="hello")
    assert same != Turn(role="user", content="hello")


def test_the_text_of_a_value_leaves_secrets_out() -> None:
    endpoint = Endpoint(
        url="https://embed.example.com", headers={"x-key": HUSH}, auth=ApiKey(key=HUSH, header="authorization")
    )
    for text in (repr(endpoint), str(endpoint), f"{endpoint}", pretty_repr(endpoint), repr([Bearer(token=HUSH)])):
        assert HUSH not in text
    assert "https://embed.example.com" in repr(endpoint)
    assert "header='authorization'" in repr(endpoint)


def test_what_a_class_calls_hidden_are_fields_of_it() -> None:
    kinds = list(_confidential())
    assert len(kinds) > 10
    for kind in kinds:
        assert kind.hidden, kind
        assert set(kind.hidden) <= set(kind.__struct_fields__), kind
