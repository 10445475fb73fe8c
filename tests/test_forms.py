"""What was typed into forms, as it is read."""

from app.web.forms import Typed, typed


def test_what_was_typed_is_gathered_in_one_pass_with_every_value_of_a_name() -> None:
    pairs = iter([("check", "a"), ("slug", "night"), ("check", "b")])
    assert typed(pairs) == Typed(texts={"check": "b", "slug": "night"}, many={"check": ("a", "b"), "slug": ("night",)})
