"""Whatever another service answers, no adapter unpacks, parses or builds more of it than its limits say.

Databases and mail servers are held against theirs in `test_sql_probe.py` and `delivery/test_hook_sending.py`.
"""

import ast
import gzip
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import app.retrievers.client.mcp_session  # noqa: F401 - before memory is measured, as it takes much
from app.answers.client import AnswerCalls, JudgeCalls
from app.answers.domain.generated import AnswerRequest
from app.answers.domain.judges import AnswerToJudge, Judge, Question, build_prompt
from app.base.addresses import Endpoint, OAuth2, retriever_policy
from app.base.errors import BusyError, UnauthorizedError
from app.base.values import Outcome
from app.hooks.client.webhook import Pinger, send_webhook
from app.hooks.domain import Hook, Message
from app.operation.client import OpenIdProvider
from app.retrievers.client.credentials import CredentialError, Keyring
from app.retrievers.client.embeddings import Embeddings
from app.retrievers.client.endpoint_client import EndpointClient
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.client.relevance import RelevanceScorer, ScorerBreaker
from app.retrievers.domain.retrievers import (
    AnswerSource,
    Dialect,
    Embedder,
    Lookup,
    ResponseMapping,
    Scorer,
    ScorerKind,
)
from tests.support.http_servers import Reply, peer, reply
from tests.support.mcp_peers import Tool, result
from tests.support.probed import answers_of, retriever_at

APP = Path(__file__).parents[2] / "app"
AGENT = "coalmine/1.0"
ANYWHERE = retriever_policy()
KEYRING = Keyring(ANYWHERE, AGENT)
ASKER = EndpointClient(policy=ANYWHERE, keyring=KEYRING, user_agent=AGENT)
CLIENT = EndpointClient(policy=ANYWHERE, keyring=KEYRING, user_agent=AGENT)
MOST_MEMORY = 90_000_000
"""Bytes a process may take for one answer: of 5 MB, the bytes in several copies and what counts them."""
FLOOD = b"[" + b"{}," * 1_600_000 + b"{}]"
ANSWERS: dict[str, Callable[[], Reply]] = {
    "a flood of small objects": lambda: reply(FLOOD),
    "a flood of small objects in a field": lambda: reply(b'{"results":' + FLOOD + b',"answer":' + FLOOD[:9] + b"}]}"),
    "lists in lists without end": lambda: reply(b'{"results":' + b"[" * 4_000_000),
    "more bytes than it may have": lambda: reply(b'{"results": "' + b"x" * 50_000_000 + b'"}'),
    "a little that unpacks to a lot": lambda: reply(
        gzip.compress(bytes(300_000_000), 1), headers={"content-encoding": "gzip"}
    ),
}
"""What hostile services answer to everything."""


@cache
def made(hostile: str) -> Reply:
    """Make an answer where it is first sent, and not in every worker that collects tests: unpacked it is 300 MB."""
    return ANSWERS[hostile]()


def ask(url: str, **changes: Any) -> str | None:
    described = {"response": ResponseMapping(hits="results", id="id", text="text"), **changes}
    (answer,) = answers_of(retriever_at(url, **described), "why?", probe=RetrieverProbe(ANYWHERE, AGENT), k=10)
    return None if answer.outcome is Outcome.OK else answer.detail


def ask_with_a_lookup(url: str) -> str | None:
    lookup = Lookup(name="collection", url=f"{url}/names", path="id")
    return ask(f"{url}/{{{{ collection }}}}", lookup=lookup)


def ask_for_columns(url: str) -> str | None:
    return ask(url, response=ResponseMapping(hits=None, id="results[*].id", text="results[*].text"))


def ask_an_embedder(url: str) -> str | None:
    return Embeddings(ASKER)(Embedder(endpoint=Endpoint(url=url), model="m"), ["why?"]).detail


def ask_a_reranker(url: str) -> str | None:
    adapter = RelevanceScorer(ASKER, Embeddings(ASKER))
    scorer = Scorer(kind=ScorerKind.RERANK, reranker=Endpoint(url=url), model="m")
    scoring = adapter.of_first_hits(scorer, None, [("why?", "because")], ScorerBreaker())
    while True:
        try:
            next(scoring)
        except StopIteration as stop:
            return str(stop.value[1])


def ask_a_judge(url: str) -> str | None:
    prompt = build_prompt(Question.FAITHFUL, AnswerToJudge(query="why?", contexts=("so",), answer="so"), "a" * 16)
    judge = Judge(slug="reader", endpoint=Endpoint(url=url), model="m")
    (found,) = [one for one in JudgeCalls(CLIENT)(judge, [prompt]) if one is not None]
    return found[1].detail


def ask_for_an_answer(url: str) -> str | None:
    source = AnswerSource(endpoint=Endpoint(url=url), json={"q": "{{ query }}"}, path="answer")
    (found,) = [one for one in AnswerCalls(CLIENT)(source, [AnswerRequest(query="why?", contexts=())]) if one]
    return found[1].detail


def ask_for_a_token(url: str) -> str | None:
    with pytest.raises(CredentialError) as caught:
        Keyring(ANYWHERE, AGENT).request_auth(OAuth2(token_url=url, client_id="a", client_secret="b"), None)
    return caught.value.detail


def ask_a_tool(url: str) -> str | None:
    return ask(f"{url}/mcp", dialect=Dialect.MCP, tool="search")


def send_to_a_hook(url: str) -> str | None:
    hook = Hook(slug="ops", kind="webhook", url=url, timeout_seconds=10.0)
    receipt = send_webhook(hook, Message(id="msg_1", body=b"{}"), datetime.now(UTC), policy=ANYWHERE)
    return None if receipt.ok else receipt.detail


def ping(url: str) -> str | None:
    return Pinger(url=url, policy=ANYWHERE, user_agent=AGENT)()


def sign_in(url: str) -> str | None:
    provider = OpenIdProvider(issuer=url, client_id="a", redirect_uri="http://127.0.0.1/sign-in", policy=ANYWHERE)
    with pytest.raises((UnauthorizedError, BusyError)) as caught:
        provider.begin("/")
    return str(caught.value)


ASKS: dict[str, tuple[str, Callable[[str], str | None]]] = {
    "a retriever": ("retrievers.client.probe", ask),
    "a retriever with a lookup": ("retrievers.client.probe", ask_with_a_lookup),
    "a retriever of columns": ("retrievers.client.probe", ask_for_columns),
    "a tool": ("retrievers.client.mcp_probe", ask_a_tool),
    "a token endpoint": ("retrievers.client.credentials", ask_for_a_token),
    "an embedder": ("retrievers.client.embeddings", ask_an_embedder),
    "a reranker": ("retrievers.client.relevance", ask_a_reranker),
    "a judge": ("answers.client", ask_a_judge),
    "an answer endpoint": ("answers.client", ask_for_an_answer),
    "a provider of sign-ins": ("operation.client", sign_in),
}
"""By who answers: the module that asks, and how; what comes back is why there is no answer."""
NOT_PARSED: dict[str, tuple[str, Callable[[str], str | None]]] = {
    "a hook": ("hooks.client.webhook", send_to_a_hook),
    "an outward ping": ("hooks.client.webhook", ping),
}
"""Those of whom the status decides."""
OF_OURS = {"definitions.client", "runs.client"}
"""What the command line reads: of a Coalmine that its user names, 100 MB, for a whole export; and of the comments of a
pull request, 20 MB for a page of them."""
BASES = {"base.net.transport", "retrievers.client.endpoint_client"}
"""What the modules that ask stand on."""


def peak_of(work: Callable[[], Any]) -> tuple[Any, int]:
    """Return what a piece of work gives, and the bytes it had at most at a time."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("hostile", ANSWERS)
@pytest.mark.parametrize("who", [*ASKS, *NOT_PARSED])
def test_a_hostile_answer_is_no_burden(who: str, hostile: str) -> None:
    _, asking = (ASKS | NOT_PARSED)[who]
    with peer(made(hostile)) as server:
        detail, peak = peak_of(lambda: asking(server.url))
    assert (detail is not None) or who in NOT_PARSED
    assert peak < MOST_MEMORY, f"{peak:,} bytes"


def test_json_within_the_text_of_a_tool_is_no_burden_either() -> None:
    texts = result({"content": [{"type": "text", "text": FLOOD.decode()}]})
    with peer(Tool(call=lambda _: texts)) as server:
        detail, peak = peak_of(lambda: ask_a_tool(server.url))
    assert detail is not None
    assert peak < MOST_MEMORY, f"{peak:,} bytes"


def test_the_bytes_of_an_answer_have_a_limit_wherever_one_is_read() -> None:
    assert {module for module, _ in (ASKS | NOT_PARSED).values()} | OF_OURS == _modules_that_ask() - BASES


def _modules_that_ask() -> set[str]:
    """Name the clients that send requests by our transport, or by what stands on it."""
    found = set()
    for path in (*APP.glob("*/client/*.py"), *APP.glob("*/client.py"), *APP.glob("base/net/*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {one.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for one in node.names}
        if names & {"exchange", "send_one", "EndpointClient"}:
            found.add(".".join(path.relative_to(APP).with_suffix("").parts))
    return found | {"base.net.transport"}


def test_a_good_answer_of_very_many_fields_that_nobody_maps_is_read() -> None:
    vectors = [{"id": f"d{number}", "text": "so", "vector": [0.5] * 1_024} for number in range(100)]
    with peer(reply(json.dumps({"results": vectors}).encode())) as server:
        assert ask(server.url) is None
