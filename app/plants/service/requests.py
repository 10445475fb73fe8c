"""Requests of a plant: made of its document and a retriever, sent once, and what their answers say of the document.

Nothing is stored here: the body of a plant is all that is needed to ask for it and to remove it, but for secrets.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final
from urllib.parse import urlsplit

from app.base.documents.http_fields import origin_of
from app.base.errors import ConflictError, InvalidInputError
from app.base.values import Answer, Outcome, Value, replace
from app.catalog.documents.check_documents import CheckDocument
from app.plants.documents import PlantRequestDocument
from app.plants.domain import ID, MARKER, TEXT, Written, is_found, marker_of
from app.retrievers.documents.requests import fill_sql_names, sql_problems
from app.retrievers.domain.probes import error_text
from app.retrievers.domain.retrievers import (
    PLACEHOLDER,
    Dialect,
    Probe,
    ProbeContext,
    ProbeQuery,
    Retriever,
    Scorer,
    ScorerKind,
)

_NO_ANSWER: Final = Answer(outcome=Outcome.SKIPPED, latency_seconds=0.0, detail="it ended without an answer")
_UNSCORED: Final = Scorer(kind=ScorerKind.JUDGED)
"""Nobody else is asked how relevant the hits are."""


class Sender(Value):
    """Sends the requests of one plant, whose `body` is that of `plant_body`."""

    probe: Probe
    key: str
    body: Mapping[str, Any]
    run_id: str
    stopping: Callable[[], bool] = lambda: False

    def ask(self, retriever: Retriever) -> tuple[bool | None, str | None]:
        """Return whether an answer has the document; None with a reason where there is no answer."""
        body = self.body
        try:
            query = ProbeQuery(position=0, query=body["query"], vars=body["vars"])
            answer = self._answer(replace(retriever, scorer=_UNSCORED), query)
        except (ConflictError, InvalidInputError) as error:
            return None, str(error)
        ranking = answer.ranking
        if answer.outcome is not Outcome.OK or ranking is None:
            return None, error_text(answer.outcome, answer.http_status, answer.detail)
        hits = list(zip(ranking.ids, ranking.documents, ranking.texts, strict=True))
        return is_found(hits, key=self.key, marker=marker_of(self.key)), None

    def write(self, retriever: Retriever, name: str) -> Written:
        """Send `put` or `remove` to the source, with the credentials of a retriever."""
        try:
            writer = writing_retriever(retriever, self.key, self.body, self.body[name])
            answer = self._answer(writer, ProbeQuery(position=0, query=self.body["text"]))
        except (ConflictError, InvalidInputError) as error:
            return Written(failure=str(error), outcome=Outcome.BLOCKED)
        if answer.outcome is Outcome.OK:
            return Written()
        failure = error_text(answer.outcome, answer.http_status, answer.detail)
        return Written(failure=failure, outcome=answer.outcome, http_status=answer.http_status)

    def _answer(self, retriever: Retriever, query: ProbeQuery) -> Answer:
        context = ProbeContext(retriever=retriever, k=self.body["k"], run_id=self.run_id)
        with closing(self.probe(context, [query])) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            for batch in batches:
                for _, answer in batch:
                    return answer
                # A write is heard out, so that it is known how it ended.
                if self.stopping() and not retriever.writes:
                    break
        return _NO_ANSWER


def plant_body(check: CheckDocument, key: str, writer_url: str) -> dict[str, Any]:
    """Return what is asked and sent of a plant of a check, as JSON; `writer_url`: where its credentials belong."""
    document = check.plant
    assert document is not None  # noqa: S101 - callers ask for those that have one
    values = {ID: key, MARKER: marker_of(key)}
    home = "" if urlsplit(writer_url).scheme.startswith("postgres") else origin_of(writer_url)
    terms = document.terms
    return {
        "text": filled(document.text, values),
        "query": filled(document.query, values),
        "put": _request_body(document.put, home, is_removal=False),
        "remove": _request_body(document.remove, home, is_removal=True),
        "k": check.fetch_k,
        "vars": dict(check.vars),
        "writer": {"named": document.credentials is not None},
        "found_within": terms.found_within,
        "gone_within": terms.gone_within,
        "poll": terms.poll,
    }


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the variables of these names filled; others stay."""
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def _request_body(document: PlantRequestDocument, home: str, *, is_removal: bool) -> dict[str, Any]:
    if document.command is not None:
        return {"command": list(document.command), "timeout": document.timeout_seconds}
    if document.sql is not None:
        return {"sql": document.sql}
    url = document.url or ""
    default = "DELETE" if is_removal and document.body is None else "POST"
    return {
        "url": f"{home}{url}" if url.startswith("/") else url,
        "method": document.method or default,
        "query": dict(document.query),
        "json": document.body,
    }


def values_of(options: Mapping[str, str], key: str, body: Mapping[str, Any]) -> dict[str, str]:
    """Return what fills the requests of a plant: a retriever's options, as its check sets them, and its own."""
    own = {ID: key, MARKER: marker_of(key), TEXT: body["text"]}
    return {name: body["vars"].get(name, value) for name, value in options.items()} | own


def writing_retriever(retriever: Retriever, key: str, body: Mapping[str, Any], request: Mapping[str, Any]) -> Retriever:
    """Return a retriever whose request is one of a plant: it is asked as any, by the same limits and guards.

    Headers and authentication go to its own host alone. Raises ConflictError where it cannot be one's.
    """
    values = values_of(retriever.options, key, body)
    plain = replace(retriever, writes=True, options=values, retries=0, scorer=_UNSCORED, answer=None)
    if "command" in request:
        raise ConflictError("it is a command, which no retriever takes")
    if "sql" in request:
        if retriever.dialect is not Dialect.SQL:
            raise ConflictError(f"retriever '{retriever.slug}' is no database: name one under credentials")
        # Names of tables and columns are those of the retriever: of its options, one may be called `id` too.
        problem = next(sql_problems(request["sql"], retriever.options, (ID, MARKER, TEXT)), None)
        if problem is not None:
            raise ConflictError(f"the statement {problem}")
        return replace(plain, sql=fill_sql_names(request["sql"], retriever.options))
    if retriever.dialect is Dialect.SQL or origin_of(request["url"]) != origin_of(retriever.url):
        if body["writer"]["named"]:
            raise ConflictError(f"retriever '{retriever.slug}' is at another host: its credentials go nowhere else")
        plain = replace(plain, headers={}, auth=None, tls=None, lookup=None)
    return replace(
        plain,
        dialect=Dialect.HTTP,
        sql=None,
        tool=None,
        url=request["url"],
        method=request["method"],
        query_parameters=request["query"],
        json=request["json"],
    )
