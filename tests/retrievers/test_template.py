"""Request templates: typed values, and no way to break out."""

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrievers.client.compiled_retriever import json_template, url_template

NAMES = ("query", "k")
ANY_TEXT = st.text(st.characters(codec=None), max_size=60)
NASTY = ['"', "\\", '"}', '","k":99,"x":"', "\n\r\t\0", "{{ k }}", "\u2028", "\ud800", "</script>", "😀", "%00&#?=+;"]


def body(document: Any, query: str = "what?", k: int = 10) -> Any:
    """Render and parse."""
    return json.loads(json_template(document, NAMES).bind(k=k).render(query=query))


def test_lone_placeholder_keeps_its_type() -> None:
    assert body({"query": "{{ query }}", "top_k": "{{k}}", "deep": [{"k": " {{  k }} "}]}) == {
        "query": "what?",
        "top_k": 10,
        "deep": [{"k": 10}],
    }


def test_placeholder_within_text_is_text() -> None:
    assert body({"q": "query: {{ query }} (top {{ k }})"}) == {"q": "query: what? (top 10)"}


def test_the_rest_of_the_document_stays_as_it_is() -> None:
    document = {"a": [1, 2.5, True, False, None, "", 'é"\\', {}], "b": {"c": {"d": []}}, 'e"': 1}
    assert body(document) == document


@pytest.mark.parametrize("root", ["{{ query }}", ["{{ query }}"], 5, None, "plain"])
def test_any_json_value_may_be_the_document(root: Any) -> None:
    assert body(root, query="x") == json.loads(json.dumps(root).replace("{{ query }}", "x"))


def test_nasty_query_stays_inside_its_string() -> None:
    for query in NASTY:
        assert body({"q": "{{ query }}", "t": "<{{ query }}>"}, query) == {"q": query, "t": f"<{query}>"}, query


@given(query=ANY_TEXT)
def test_any_query_stays_inside_its_string(query: str) -> None:
    """A round trip through JSON brings the query back, alone and within text."""
    assert body({"q": "{{ query }}", "t": ["<{{ query }}{{ query }}>"]}, query) == {
        "q": query,
        "t": [f"<{query}{query}>"],
    }


@pytest.mark.parametrize("text", ["{{ quary }}", "x {{ vector }} y", "{{ query.x }}", "{{ query | upper }}", "{{}}"])
def test_unknown_placeholder_is_refused_naming_the_known(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a known placeholder; there are \{\{ query \}\}, \{\{ k \}\}"):
        json_template({"a": [text]}, NAMES)


def test_unclosed_placeholder_is_refused() -> None:
    with pytest.raises(ValueError, match="not closed"):
        json_template("{{ query }", NAMES)


def test_placeholder_in_a_field_name_is_refused_where_it_is_no_option() -> None:
    for field_names in ((), ("field",)):
        with pytest.raises(ValueError, match="names of fields may hold placeholders of options alone"):
            json_template({"{{ query }}": 1}, NAMES, field_names)


def test_option_in_a_field_name_stays_inside_it() -> None:
    for name in NASTY:
        template = json_template({"a": 1, "x.{{ field }}": {"{{field}}": "{{ k }}"}}, (*NAMES, "field"), ("field",))
        assert json.loads(template.bind(field=name, k=10).render()) == {"a": 1, f"x.{name}": {name: 10}}, name


def test_no_name_is_taken() -> None:
    template = json_template(["{{ self }}", "{{ values }}"], ("self", "values"))
    assert template.bind(self="a", values="b").render() == b'["a","b"]'
    assert template.render(self="a", values="b") == b'["a","b"]'


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="no place in a JSON document"):
        json_template({"a": object()}, NAMES)


def test_binding_leaves_only_the_other_names() -> None:
    template = json_template({"q": "{{ query }}", "k": "{{ k }}"}, NAMES)
    assert template.names == {"query", "k"}
    assert template.bind(k=3).names == {"query"}
    assert template.bind(k=3).render(query="x") == b'{"q":"x","k":3}'


def url(pattern: str, query: str = "what?", **parameters: Any) -> str:
    """Render a URL with ten as k."""
    return url_template(pattern, parameters, NAMES).bind(k=10).render(query=query).decode()


def test_parameters_are_appended_encoded() -> None:
    rendered = url(
        "http://h/search?a=1#part", "a&b=c ü", q="{{ query }}", k="{{ k }}", tag=["x", "y"], on=True, no=None
    )
    assert rendered == "http://h/search?a=1&q=a%26b%3Dc%20%C3%BC&k=10&tag=x&tag=y&on=true"


def test_placeholders_may_stand_in_path_and_query() -> None:
    assert (
        url("https://h:8443/q/{{ query }}/top?k={{ k }}&f=a%20b", "x/y?z")
        == "https://h:8443/q/x%2Fy%3Fz/top?k=10&f=a%20b"
    )


def test_missing_path_becomes_the_root() -> None:
    assert url("http://h", q="{{ query }}") == "http://h/?q=what%3F"


@given(query=ANY_TEXT)
def test_any_query_stays_one_parameter_and_one_step_of_the_path(query: str) -> None:
    """Host, path depth and the other parameters are what they were."""
    split = urlsplit(url("http://h:1/a/{{ query }}/b?x={{ query }}", query, q="{{ query }}"))
    whole = query.encode(errors="replace").decode()
    assert split.netloc == "h:1"
    assert split.path.count("/") == 3
    assert ".." not in split.path
    assert parse_qsl(split.query, keep_blank_values=True) == [("x", whole), ("q", whole)]


def test_bad_url_is_refused() -> None:
    for bad in [
        "http://{{ query }}/",
        "http://h:{{ k }}/",
        "file:///etc/passwd",
        "ftp://h/",
        "/search",
        "",
        "http://",
        "http://[::1",
        "http://h:x/",
    ]:
        with pytest.raises(ValueError, match="URL"):
            url_template(bad, {}, NAMES)
