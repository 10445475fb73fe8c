"""Bodies that hold too much are refused by their bytes, before anything is built of them."""

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.db.engine import Store
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.documents.parsing import NodeBudget
from app.base.errors import InvalidInputError, StoreUnavailableError
from app.base.texts import REQUEST_LIMITS, JsonLimits, Source, excess_of
from app.catalog.documents import canary_documents
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.canary_files import Documents, read_canary_files
from app.catalog.exchange import FORMATS
from app.catalog.exchange.suite_builder import Limits, SuiteBuilder
from app.catalog.store import API
from app.definitions.service import applying
from tests.support.fakes import START

VALUES = st.recursive(
    st.none() | st.integers() | st.text('",[]{}\\ä', max_size=6),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('a",[\\', max_size=3), inner, max_size=4),
    max_leaves=40,
)


def size_of(value: Any) -> tuple[int, int, int]:
    """Count (depth, values, entries of the longest) of what was built."""
    if not isinstance(value, dict | list):
        return 0, 1, 0
    within = [size_of(one) for one in (value.values() if isinstance(value, dict) else value)]
    depth, longest = (max((one[at] for one in within), default=0) for at in (0, 2))
    return depth + 1, 1 + sum(one[1] for one in within), max(longest, len(within))


@given(VALUES, st.booleans(), st.booleans())
def test_no_json_that_exceeds_a_limit_is_let_through(value: Any, spaced: bool, plain: bool) -> None:  # noqa: FBT001 - drawn
    text = json.dumps(value, separators=(", ", ": ") if spaced else (",", ":"), ensure_ascii=plain).encode()
    depth, values, entries = size_of(value)
    assert "levels deep" in str(excess_of(text, JsonLimits(depth=depth - 1, values=10**6, entries=10**6))) or not depth
    assert excess_of(text, JsonLimits(depth=depth, values=2 * values, entries=max(entries, 1))) is None
    few = excess_of(text, JsonLimits(depth=99, values=values - 1, entries=10**6))
    assert few == f"holds more than {values - 1} values; send it in parts"
    if entries > 1:
        limits = JsonLimits(depth=99, values=10**6, entries=entries - 1)
        assert f"of {entries} entries" in str(excess_of(text, limits))


def test_what_is_no_json_is_counted_without_failing() -> None:
    for text in [b"", b"]]]]", b'"', b'"\\', b"[[[", b'\\\\"[,', b"\xff\xfe[[,", b",,,", b"{]"]:
        assert excess_of(text, REQUEST_LIMITS) is None, text


def test_yaml_that_came_over_the_network_holds_a_bounded_number_of_values() -> None:
    half = "canaries: [" + "{}," * (NodeBudget().left // 2) + "]"
    with pytest.raises(InvalidInputError, match="hold more than 300,000 values"):
        read_canary_files([("a.yaml", half), ("b.yaml", half)], {}, None)


def test_files_of_ones_own_are_read_however_much_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeBudget.__init__, "__defaults__", (10,))
    text = "suite: s\ncanaries:\n" + "".join(
        f"  - {{key: k{at}, query: what?, category: negative}}\n" for at in range(9)
    )
    read = read_canary_files([("a.yaml", text)], {}, lambda name: name)
    assert len(read.suites[0].canaries or ()) == 9
    with pytest.raises(InvalidInputError, match="hold more than 10 values"):
        read_canary_files([("a.yaml", text)], {}, None)


@pytest.mark.parametrize(("limits", "message"), [({"canaries": 2}, "2 queries"), ({"judgments": 2}, "2 judgments")])
def test_an_import_of_more_rows_than_its_limits_is_refused_at_the_row(limits: Any, message: str) -> None:
    source = Source(name="a.csv", lines=lambda: ["query,id\n", "a,1\n", "b,2\n", "c,3\n", "d\n"])
    builder = SuiteBuilder(limits=Limits(**limits))
    with pytest.raises(InvalidInputError) as refused:
        FORMATS["csv"].read([source], builder)
    (problem,) = refused.value.problems
    assert (problem.file, problem.line) == ("a.csv", 4)
    assert problem.message.startswith(f"there are more than {message}; ")


def problems_of(suite: Any) -> list[tuple[str | None, str]]:
    """List what is wrong with a suite: (path, message)."""
    with pytest.raises(InvalidInputError) as refused:
        parse_document(SuiteDocument, suite)
    return [(one.path, one.message) for one in refused.value.problems]


def test_a_list_validated_in_blocks_has_the_problems_it_has_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    canaries: list[Any] = [{"key": f"k{at}", "query": "what?"} for at in range(10)]
    canaries[3] = {"key": "k3", "query": 5, "floors": {"nothing@5": 0.5}}
    canaries[7] = {"key": "k0", "query": "twice", "expected_chunks": [{"id": "a", "grade": 9}], "colour": "red"}
    suite = {"slug": "s", "canaries": canaries}
    whole = problems_of(suite)
    assert {path for path, _ in whole} == {
        "canaries[3].query",
        "canaries[3].floors.nothing@5",
        "canaries[7].expected_chunks[0].grade",
        "canaries[7].colour",
    }
    monkeypatch.setattr(canary_documents, "_BLOCK", 2)
    assert problems_of(suite) == whole
    canaries[3:8] = canaries[:1]
    assert problems_of(suite) == [("canaries[3].key", "the key 'k0' is used twice")]


def test_a_long_list_that_is_all_wrong_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []
    adapter = canary_documents._adapter(CanaryDocument)

    class Counting:
        def validate_python(self, block: list[Any]) -> Any:
            checked.append(len(block))
            return adapter.validate_python(block)

    monkeypatch.setattr(canary_documents, "_adapter", lambda _model: Counting())
    assert len(problems_of({"slug": "s", "canaries": [{}] * 50_000})) == 101
    assert checked == [500]


def test_nobody_waits_for_the_writer_while_canaries_are_made_ready(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = Store(str(sqlite_store.engine.url), busy_milliseconds=0)
    hashed, locked = threading.Event(), []
    hash_of = CanaryDocument.content_hash

    def watched(document: CanaryDocument) -> str:
        try:
            with impatient.write():
                hashed.set()
        except StoreUnavailableError:
            locked.append(document)
        return hash_of(document)

    suite = SuiteDocument.model_validate({"slug": "s", "canaries": [{"key": "a", "query": "?"}]})
    monkeypatch.setattr(CanaryDocument, "content_hash", watched)
    applying.apply(sqlite_store, Vault("a key for this test"), Documents(suites=(suite,)), managed_by=API, now=START)
    impatient.close()
    assert hashed.is_set()
    assert not locked
