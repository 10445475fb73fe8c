"""Named parameters in SQL: found where they are meant, left alone where a colon means something else."""

import pytest

from app.retrievers.client.sql import compile_statement

NAMES = ("query", "k", "vector")


def test_parameters_are_found_where_they_are_meant() -> None:
    for sql, compiled, used in [
        ("SELECT :query LIMIT :k", "SELECT %(query)s LIMIT %(k)s", {"query", "k"}),
        ("SELECT :query, :query", "SELECT %(query)s, %(query)s", {"query"}),
        ("SELECT :vector::vector", "SELECT %(vector)s::vector", {"vector"}),
        ("SELECT e<=>:vector", "SELECT e<=>%(vector)s", {"vector"}),
        ("SELECT ':query', :query", "SELECT ':query', %(query)s", {"query"}),
        ("SELECT 'it''s :k', :query", "SELECT 'it''s :k', %(query)s", {"query"}),
        (r"SELECT E'it\'s :k', :query", r"SELECT E'it\'s :k', %(query)s", {"query"}),
        ('SELECT ":k", :query', 'SELECT ":k", %(query)s', {"query"}),
        ("SELECT $$:k$$, $a$:k $$ $a$, :query", "SELECT $$:k$$, $a$:k $$ $a$, %(query)s", {"query"}),
        ("SELECT :query -- :k\n, 1", "SELECT %(query)s -- :k\n, 1", {"query"}),
        ("SELECT /* :k ; */ :query", "SELECT /* :k ; */ %(query)s", {"query"}),
        ("SELECT a[1:2], :query", "SELECT a[1:2], %(query)s", {"query"}),
        ("SELECT 10 % 3, '50%', :query", "SELECT 10 %% 3, '50%%', %(query)s", {"query"}),
        ("SELECT :query ; -- done\n", "SELECT %(query)s  -- done", {"query"}),
    ]:
        assert compile_statement(sql, NAMES) == (compiled, frozenset(used)), sql


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT 1 LIMIT :k", "never uses :query"),
        ("", "never uses :query"),
        ("SELECT :quary", ":quary is not a known parameter; there are :query, :k, :vector"),
        ("SELECT :query; DROP TABLE docs", "must be one statement"),
        ("SELECT 'never closed :query", "never uses :query"),
    ],
)
def test_statement_that_cannot_be_asked_is_refused(sql: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_statement(sql, NAMES)
