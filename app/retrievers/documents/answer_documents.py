"""The document of an endpoint that answers a query from retrieved texts."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from app.base.documents.auth_documents import AuthDocument, TlsDocument, endpoint_value
from app.base.documents.fields import Document, FreeJson, Seconds, Url, field_error, field_errors
from app.base.documents.http_fields import Headers
from app.retrievers.documents.embedding_documents import refuse_duplicate_header
from app.retrievers.documents.placeholders import placeholders_in, template_problems
from app.retrievers.documents.request_documents import Path, ResponseDocument
from app.retrievers.domain.retrievers import AnswerSource

ANSWER_NAMES = ("query", "contexts")
TIMEOUT_SECONDS = 60.0


def _with_query(request: Any) -> Any:
    problems = list(template_problems(request, ANSWER_NAMES))
    if not problems and "query" not in placeholders_in(request):
        problems = [((), "must hold {{ query }}, or all canaries would get the same answer")]
    if problems:
        raise field_errors(problems)
    return request


class AnswerDocument(Document):
    """An endpoint that answers a query from the texts of its hits; asked after a run, for canaries that are judged.

    `request` is the JSON that is posted: `{{ query }}` and, for the texts of the top k hits in their order, a list,
    `{{ contexts }}`. `path` is the JMESPath of the answer's text in the response.
    """

    url: Url
    request: Annotated[FreeJson, AfterValidator(_with_query)]
    path: Path
    headers: Headers = Field(default={}, repr=False)
    auth: AuthDocument | None = None
    tls: TlsDocument | None = None
    timeout: Seconds = TIMEOUT_SECONDS

    @model_validator(mode="after")
    def _check_headers(self) -> Self:
        refuse_duplicate_header(self.headers, self.auth)
        return self

    def to_domain(self) -> AnswerSource:
        """Return the value the domain works with."""
        return AnswerSource(
            endpoint=endpoint_value(self.url, headers=self.headers, auth=self.auth, tls=self.tls, timeout=self.timeout),
            json=self.request,
            path=self.path,
        )


def check_source(answer: AnswerDocument | None, response: ResponseDocument | None) -> AnswerDocument | None:
    """Return the endpoint; raise where a response of the retriever makes it useless. None = there is none."""
    if answer is None or response is None:
        return answer
    if response.answer is not None:
        raise field_error("is not needed: responses have an answer of their own, response: answer; keep one")
    if response.text is None:
        raise field_error("is made of the texts of hits; map them under response: text")
    return answer
