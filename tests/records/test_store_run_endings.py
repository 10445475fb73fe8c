"""What is recorded reads back equal, whatever was retrieved: rankings, texts, and one snapshot at a time."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.base.db.engine import Store, insert_new
from app.base.errors import StoreUnavailableError
from app.base.values import Ranking, replace
from app.records.store import ranking_rows
from app.scoring.rankings import decimals_of, round_ranking
from tests.conftest import Databases
from tests.support.fakes import hits
from tests.support.world import World

pytestmark = pytest.mark.databases

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
ANY_SCORE = st.none() | st.floats(allow_nan=False, allow_infinity=False)
ANY_TIME = st.none() | st.floats(-1e9, 1e11).map(lambda at: at + 0.0) | st.integers(0, 10**10).map(float)


@st.composite
def any_rankings(draw: st.DrawFn) -> Ranking:
    """Draw rankings as a mapping hands them over: distinct ids, anything else."""
    ids = draw(st.lists(ANY_TEXT.filter(bool) | st.sampled_from(["a", "b", "\U0001f426"]), unique=True, max_size=5))
    size = len(ids)
    return Ranking(
        ids=tuple(ids),
        documents=tuple(draw(st.lists(st.none() | ANY_TEXT, min_size=size, max_size=size))),
        texts=tuple(draw(st.lists(st.none() | ANY_TEXT, min_size=size, max_size=size))),
        scores=tuple(draw(st.lists(ANY_SCORE, min_size=size, max_size=size))),
        returned=size + draw(st.integers(0, 3)),
        updated=draw(st.none() | st.lists(ANY_TIME, min_size=size, max_size=size).map(tuple)),
        relevance=draw(st.none() | st.floats(0, 1).map(lambda share: share + 0.0)),
    )


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(any_rankings(), max_size=4), decimals=st.integers(0, 15))
def test_rankings_read_back_equal_to_what_was_saved(store: Store, drawn: list[Ranking], decimals: int) -> None:
    saved = {settled.fingerprint or b"": settled for one in drawn for settled in [round_ranking(one, decimals)]}
    with store.write() as connection:
        ids = ranking_rows.save_rankings(connection, decimals, saved)
        again = ranking_rows.save_rankings(connection, decimals, saved)
    assert ids == again
    with store.read() as connection:
        loaded = ranking_rows.load_rankings(connection, list(ids.values()))
    assert {digest: loaded[ranking_id] for digest, ranking_id in ids.items()} == saved


@pytest.mark.parametrize("score", [1e300, -1e300, 9.1e15, 12345678901.123456, 0.1 + 0.2, -0.0, 5e-324])
def test_scores_of_any_size_read_back_as_they_were_judged(sqlite_store: Store, score: float) -> None:
    """A logit has no bound; as a multiple of a millionth, 1e300 fits into no integer a database has."""
    for decimals in (decimals_of(precision) for precision in (1.0, 1e-6, 1e-12, 0.0)):
        ranking = round_ranking(hits("a", scores=[score]), decimals)
        with sqlite_store.write() as connection:
            ids = ranking_rows.save_rankings(connection, decimals, {ranking.fingerprint or b"": ranking})
            loaded = ranking_rows.load_rankings(connection, list(ids.values()))
        assert list(loaded.values()) == [ranking]


def test_rankings_stored_before_there_were_times_still_read(sqlite_store: Store) -> None:
    ranking = round_ranking(hits("a", "b"), 6)
    with sqlite_store.write() as connection:
        ids = ranking_rows.save_rankings(connection, 6, {ranking.fingerprint or b"": ranking})
        (body,) = connection.exec_driver_sql("SELECT body FROM rankings").scalars()
        before = msgspec.msgpack.encode(msgspec.msgpack.decode(body)[:4])
        connection.exec_driver_sql("UPDATE rankings SET body = ?", (before,))
        assert ranking_rows.load_rankings(connection, list(ids.values())) == {ids[ranking.fingerprint or b""]: ranking}


def test_another_time_or_relevance_is_another_ranking() -> None:
    """They are judged by what is stored, so a chunk written anew must not be taken for the old one."""
    drawn = [replace(hits("a", "b"), updated=updated) for updated in (None, (None, None), (1.0, None), (None, 1.0))]
    drawn += [replace(hits(), updated=updated) for updated in (None, ())]
    drawn += [replace(hits("a", "b"), relevance=relevance) for relevance in (0.0, 0.25)]
    assert len({round_ranking(ranking, 6).fingerprint for ranking in drawn}) == len(drawn)


def test_texts_are_stored_once_whatever_rankings_they_are_in(store: Store) -> None:
    world = World(store=store)
    texts = {"a": "alpha", "b": "beta"}
    for ranking in (hits("a", "b", texts=texts), hits("b", "a", texts=texts), hits("a", texts={"a": "changed"})):
        settled = round_ranking(ranking, 6)
        with store.write() as connection:
            ranking_rows.save_rankings(connection, 6, {settled.fingerprint or b"": settled})
    assert world.count("rankings", "chunks") == {"rankings": 3, "chunks": 3}


def test_a_read_sees_one_snapshot(store: Store) -> None:
    """What is read together belongs together, even when somebody writes in between."""

    def layouts(connection: object) -> Sequence[object]:
        rows: Sequence[object] = connection.exec_driver_sql("SELECT names FROM layouts").all()  # type: ignore[attr-defined] # keeps SQLAlchemy out
        return rows

    with store.read() as connection:
        before = layouts(connection)
        with store.write() as writer:
            ranking_rows.layout_id(writer, ["a"], "1", "k=5")
        assert layouts(connection) == before == []
    with store.read() as connection:
        assert len(layouts(connection)) == 1


def test_a_layout_is_stored_once_for_each_yardstick(store: Store) -> None:
    with store.write() as connection:
        ids = [
            ranking_rows.layout_id(connection, names, version, yardstick)
            for names in (["a", "b"], ["b", "a"])
            for version in ("1", "2")
            for yardstick in ("k=5", "k=10")
            for _ in range(2)
        ]
    assert len(set(ids)) == 8
    assert ids[::2] == ids[1::2]


def test_a_locked_database_is_said_to_be_unavailable_and_nothing_is_written(databases: Databases) -> None:
    for url in (databases.sqlite(), databases.postgresql()):
        store, other = Store(url, busy_milliseconds=20), Store(url)
        with other.write() as holding:
            if other.dialect == "postgresql":
                holding.exec_driver_sql("LOCK TABLE layouts IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreUnavailableError, match=r"locked|lock timeout"), store.write() as connection:
                ranking_rows.layout_id(connection, ["a"], "1", "")
        with store.write() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM layouts").scalar_one() == 0
            ranking_rows.layout_id(connection, ["a"], "1", "")
        store.close()
        other.close()


class Word(StrEnum):
    """A text of a list."""

    ONE = "one"


def test_many_rows_are_inserted_as_few_are_and_those_that_are_there_stay(store: Store) -> None:
    id_, name, flag, score, body = (
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("name", sa.Text),
        sa.Column("flag", sa.Boolean),
        sa.Column("score", sa.Float(53)),
        sa.Column("body", sa.LargeBinary),
    )
    table = sa.Table("many_rows", sa.MetaData(), id_, name, flag, score, body)
    columns = ("id", "name", "flag", "score", "body")
    scores: Sequence[float | None] = (1, 0.25, None, 2**40)
    rows = [
        (number, (Word.ONE, "two", None)[number % 3], number % 2 == 0, scores[number % 4], bytes([number % 7, 0]))
        for number in range(1_000)
    ]
    with store.write() as connection:
        table.create(connection)
        insert_new(connection, table, columns, [(5, "there", True, 0.5, b"there")])
        insert_new(connection, table, columns, rows[:3])
        insert_new(connection, table, columns, rows)
        insert_new(connection, table, columns, rows[:100])
        found = [tuple(row) for row in connection.execute(sa.select(table).order_by(id_))]
        table.drop(connection)
    assert found == [*rows[:5], (5, "there", True, 0.5, b"there"), *rows[6:]]
