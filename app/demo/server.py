"""The demo over HTTP: a search endpoint, a switch for the faults of `faults`, and a hook receiver.

Each app owns its corpus and index. A state (fault, index) is replaced as a whole, so searches need no lock.
"""

import asyncio
import html
import itertools
import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from app.demo import answering, faults
from app.demo.corpus import Chunk, read_corpus
from app.demo.faults import EFFECTS, SIZES, BadFaultError, Fault, FaultKind
from app.demo.retriever import SCALE, Hit, Retriever

RECEIVED = 50

_FOLDER = Path(__file__).parent
_CSV = "text/csv; charset=utf-8"
_OBJECT = TypeAdapter(dict[str, Any])
_POLL_SECONDS = 0.1
_CLIENT_CLOSED = 499  # nobody reads it; nginx's number for a client that went away


def create_demo(corpus: Sequence[Path] | None = None, *, chunk_characters: int | None = None) -> FastAPI:
    """Build the demo retriever over JSONL files, by default the bundled documentation of DataForge.

    Several files are one corpus: the later ones may be distractors. `chunk_characters` cuts texts into chunks
    `<id>#<n>`. Raises CorpusError when a file cannot be used.
    """
    switch = _Switch(read_corpus(corpus, chunk_characters=chunk_characters))
    demo = FastAPI(title="Coalmine demo retriever", docs_url=None, redoc_url=None, openapi_url=None)
    demo.add_exception_handler(ValidationError, _bad_body)
    demo.add_exception_handler(BadFaultError, _bad_fault)
    demo.add_exception_handler(ClientDisconnect, _client_closed)

    async def delay_search(request: Request, _: Annotated[bytes, Depends(_body)]) -> None:
        # Waits on the event loop and not in a thread, so that a slow demo can still be healed. The body is read first:
        # looking for a client that went away takes it from the wire.
        loop = asyncio.get_running_loop()
        end = loop.time() + faults.delay_seconds(switch.state.fault)
        while (remaining := end - loop.time()) > 0:
            await asyncio.sleep(min(remaining, _POLL_SECONDS))
            if await request.is_disconnected():
                raise ClientDisconnect

    @demo.post("/search", dependencies=[Depends(delay_search)])
    def search(body: Annotated[bytes, Depends(_body)]) -> JSONResponse:
        search_request = SearchRequest.model_validate_json(body)
        state = switch.state
        if faults.fails(state.fault, next(state.numbers)):
            return _problem(500, "internal-error", "The demo retriever was told to fail.")
        hits = faults.distort_hits(state.retriever.search(search_request.query, search_request.top_k), state.fault)
        return JSONResponse(
            {"index": state.retriever.version, "scale": SCALE, "results": [_result(hit) for hit in hits]}
        )

    @demo.post("/fault")
    def set_fault(body: Annotated[bytes, Depends(_body)]) -> JSONResponse:
        fault_request = FaultRequest.model_validate_json(body)
        switch.turn(faults.make_fault(fault_request.kind, fault_request.size, fault_request.topic, switch.chunks))
        return JSONResponse(switch.report())

    @demo.get("/fault")
    async def get_fault() -> JSONResponse:
        return JSONResponse(switch.report())

    @demo.get("/healthz")
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @demo.get("/")
    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(render(str(request.base_url).rstrip("/"), switch.report()))

    _add_hook(demo)
    _add_samples(demo)
    _add_answers(demo)
    return demo


def _add_hook(demo: FastAPI) -> None:
    received: deque[dict[str, Any]] = deque(maxlen=RECEIVED)

    @demo.post("/hook")
    def receive(body: Annotated[bytes, Depends(_body)]) -> JSONResponse:
        received.append(_OBJECT.validate_json(body))
        return JSONResponse({"received": len(received)})

    @demo.get("/hook")
    async def get_received() -> JSONResponse:
        return JSONResponse({"received": list(reversed(received))})


def _add_samples(demo: FastAPI) -> None:
    @demo.get("/traffic.csv")
    def traffic() -> FileResponse:
        return FileResponse(_FOLDER / "traffic.csv", media_type=_CSV)

    @demo.get("/annotations.csv")
    def annotations() -> FileResponse:
        return FileResponse(_FOLDER / "annotations.csv", media_type=_CSV)


def _add_answers(demo: FastAPI) -> None:
    @demo.post("/answer")
    def answer(body: Annotated[bytes, Depends(_body)]) -> JSONResponse:
        asked = AnswerRequest.model_validate_json(body)
        return JSONResponse({"answer": answering.answer_question(asked.question, asked.passages)})

    @demo.post("/v1/chat/completions")
    def judge(body: Annotated[bytes, Depends(_body)]) -> JSONResponse:
        prompt = "\n".join(message.content for message in ChatRequest.model_validate_json(body).messages)
        reply = answering.judge_answer(prompt)
        message = {"role": "assistant", "content": reply}
        used = (len(prompt) + len(reply)) // 4  # about four characters a token
        return JSONResponse({"choices": [{"index": 0, "message": message}], "usage": {"total_tokens": used}})


def run_demo(host: str, port: int, corpus: Sequence[Path] | None, chunk_characters: int | None) -> None:
    """Serve the demo until it is interrupted."""
    demo = create_demo(corpus, chunk_characters=chunk_characters)
    uvicorn.run(demo, host=host, port=port, access_log=False, log_level="warning")


class SearchRequest(BaseModel):
    """Body of `POST /search`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str = Field(min_length=1, max_length=20_000)
    top_k: int = Field(default=10, ge=1, le=1_000)


class AnswerRequest(BaseModel):
    """Body of `POST /answer`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    question: str = Field(max_length=20_000)
    passages: list[str] = Field(max_length=1_000)


class _Message(BaseModel):
    content: str


class ChatRequest(BaseModel):
    """Body of `POST /v1/chat/completions`, of which only the messages matter."""

    messages: list[_Message] = Field(max_length=100)


class FaultRequest(BaseModel):
    """Body of `POST /fault`; which kinds, sizes and topics exist is checked by `faults.make_fault`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: str
    size: float | None = Field(default=None, allow_inf_nan=False)
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A fault and the index as it left it; `numbers` counts the searches since."""

    fault: Fault
    retriever: Retriever
    numbers: Iterator[int] = field(default_factory=itertools.count)


class _Switch:
    """Holds the whole corpus and the state now in force."""

    def __init__(self, chunks: tuple[Chunk, ...]) -> None:
        self.chunks = chunks
        self._healthy = Retriever(chunks)
        self._turning = threading.Lock()
        self.state = _State(fault=Fault(), retriever=self._healthy)

    def turn(self, fault: Fault) -> None:
        """Put a fault in force in place of the one before."""
        with self._turning:
            remaining = faults.damage_chunks(self.chunks, fault)
            self.state = _State(
                fault=fault, retriever=self._healthy if remaining == self.chunks else Retriever(remaining)
            )

    def report(self) -> dict[str, object]:
        """Describe the state: the fault, the index version and how many chunks it holds of how many."""
        state = self.state
        return {
            "kind": state.fault.kind,
            "size": state.fault.size,
            "topic": state.fault.topic,
            "index": state.retriever.version,
            "chunks": len(state.retriever.chunks),
            "healthy_chunks": len(self.chunks),
        }


async def _body(request: Request) -> bytes:
    # Whatever the content type says: `curl -d` sends JSON under the name of a form.
    return await request.body()


def _result(hit: Hit) -> dict[str, object]:
    chunk = hit.chunk
    metadata = {"source": chunk.document, "topic": chunk.topic, "title": chunk.title}
    return {"id": chunk.id, "score": hit.score, "text": chunk.text, "metadata": metadata}


def _bad_body(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, ValidationError):
        raise error
    errors = [
        {"path": ".".join(map(str, each["loc"])) or "body", "message": each["msg"]}
        for each in error.errors(include_url=False)
    ]
    return _invalid_input(errors, kinds=error.title == FaultRequest.__name__)


def _bad_fault(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, BadFaultError):
        raise error
    return _invalid_input([{"path": error.field, "message": str(error)}], kinds=True)


def _client_closed(_: Request, _error: Exception) -> Response:
    return Response(status_code=_CLIENT_CLOSED)


def _invalid_input(errors: Sequence[dict[str, str]], *, kinds: bool) -> JSONResponse:
    detail = "; ".join(f"{each['path']}: {each['message']}" for each in errors)
    more = {"errors": errors, "kinds": list(FaultKind)} if kinds else {"errors": errors}
    return _problem(422, "invalid-input", detail, more)


def _problem(status: int, slug: str, detail: str, more: Mapping[str, Any] = MappingProxyType({})) -> JSONResponse:
    """Answer in the form of RFC 9457."""
    title = slug.replace("-", " ").capitalize()
    body = {"type": f"/problems/{slug}", "title": title, "status": status, "detail": detail, **more}
    return JSONResponse(body, status_code=status, media_type="application/problem+json")


def render(base: str, report: Mapping[str, object]) -> str:
    """Return the page for a demo reachable at `base`, in the state that `report` describes (the body of GET /fault)."""
    state = json.dumps(report, indent=2)
    return _PAGE.format(
        state=html.escape(state),
        search=html.escape(_post(base, "/search", {"query": "How do I configure OAuth2 authentication?", "top_k": 5})),
        wreck=html.escape(_post(base, "/fault", {"kind": FaultKind.LOSS, "size": SIZES[FaultKind.LOSS].default})),
        heal=html.escape(_post(base, "/fault", {"kind": FaultKind.NONE})),
        kinds="".join(map(_row, FaultKind)),
    )


def _post(base: str, path: str, body: Mapping[str, object]) -> str:
    return f"curl {base}{path} -H 'content-type: application/json' -d '{json.dumps(body)}'"


def _row(kind: FaultKind) -> str:
    size = SIZES.get(kind)
    range_ = f"{size.meaning}: {size.least:g} to {size.most:g}, default {size.default:g}" if size else "none"
    return f"<tr><td><code>{kind}</code></td><td>{html.escape(EFFECTS[kind])}</td><td>{html.escape(range_)}</td></tr>\n"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Coalmine demo retriever</title>
<link rel="icon" href="data:,">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ padding: .8rem; overflow-x: auto; border: 1px solid #8888 }}
td, th {{ padding: .2rem 1rem .2rem 0; text-align: left; vertical-align: top }}
</style>
</head>
<body>
<h1>Coalmine demo retriever</h1>
<p>A real retriever (BM25) over a corpus, here to be watched and to be broken. The score of a hit is its relevance
from 0 to 1: the share of what the best imaginable passage would earn for the query, words nobody knows included,
stretched by one fixed curve.</p>
<h2>Ask it</h2>
<pre>{search}</pre>
<h2>Break it, then heal it</h2>
<pre>{wreck}
{heal}</pre>
<p>One fault is in force at a time; a new one takes the place of the old.</p>
<table>
<tr><th>kind</th><th>effect</th><th>size</th></tr>
{kinds}</table>
<h2>Its state now</h2>
<pre>{state}</pre>
</body>
</html>
"""
