"""Evidence of a public collection as answers, and the same with changed numbers, judged and labelled the whole way.

    python -m benchmarks.judged_evidence [FOLDER] [LABELS]

FOLDER (default ../shared/data/chunkeval) holds docs.jsonl.gz {doc_id, text} and queries.jsonl.gz {qid, text, doc_id,
refs: [[start, end, text]]}. Each question is a canary whose answer is a passage of its evidence, word by word; where
that holds a number, it is a second canary whose answer has other numbers. A served Coalmine asks retriever, answers and
judge over HTTP; the judge is the demo's, which errs in stated shares. LABELS (default 200) answers are labelled over
REST by what is true. It fails unless the judge counts as calibrated and the intervals hold what is known.
"""

import gzip
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from app.demo import answering as demo
from benchmarks.experiment_intake import Server
from tests.support.http_servers import Peer, Reply, Seen, peer, reply
from tests.support.living import until

_NUMBER: Final = re.compile(r"\d+")
_AROUND: Final = 150
"""Characters of the document before and behind an evidence that its chunk has."""
_CHANGED: Final = "Once more: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with the chunks it is answered from, its answer, and whether they support it."""

    key: str
    query: str
    chunks: Sequence[str]
    answer: str
    is_supported: bool


def main(folder: str, labels: int) -> None:
    """Print what the judge's report says beside what is true."""
    asked = {one.query: one for one in questions(Path(folder))}
    right = sum(one.is_supported for one in asked.values())
    print(f"{len(asked)} answers, {right} supported: {right / len(asked):.3f}")
    with answering_peer(asked) as there, served() as server:
        for path, body in definitions(there.url, list(asked.values())):
            server.send("PUT", path, json.dumps(body))
        server.send("POST", "/v1/checks/evidence/runs", "{}")
        until(lambda: is_judged(server), seconds=300)
        server.send("PUT", "/v1/tasks/labels", json.dumps(task(labels)))
        server.send("POST", "/v1/tasks/labels/pool")
        until(lambda: server.send("GET", "/v1/tasks/labels")["state"] == "pooled", seconds=300)
        print(f"{label(server, asked)} answers labelled")
        measures = until(lambda: counted(server), seconds=60)
    describe(measures, right / len(asked))


def questions(folder: Path) -> Iterator[Question]:
    """Yield the questions of a collection, those with a number twice."""
    with gzip.open(folder / "docs.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = {one["doc_id"]: one["text"] for one in map(json.loads, lines)}
    with gzip.open(folder / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        for one in map(json.loads, lines):
            text = texts[one["doc_id"]]
            chunks = [text[max(start - _AROUND, 0) : end + _AROUND] for start, end, _ in one["refs"]]
            spans = [found for _, _, found in one["refs"]]
            answer = next((span for span in spans if _NUMBER.search(span)), spans[0])
            yield Question(key=one["qid"], query=one["text"], chunks=chunks, answer=answer, is_supported=True)
            changed = _NUMBER.sub(lambda found: str(int(found[0]) + 3), answer)
            if changed != answer:
                key, query = f"{one['qid']}-changed", _CHANGED + one["text"]
                yield Question(key=key, query=query, chunks=chunks, answer=changed, is_supported=False)


@contextmanager
def answering_peer(asked: Mapping[str, Question]) -> Iterator[Peer]:
    """Serve a retriever, the endpoint of answers and a judge."""

    def answer(seen: Seen) -> Reply:
        body = json.loads(seen.body)
        if seen.target == "/search":
            one = asked[body["query"]]
            hits = [
                {"id": f"{one.key.removesuffix('-changed')}-{place}", "text": text}
                for place, text in enumerate(one.chunks)
            ]
            return reply(json.dumps({"hits": hits}).encode())
        if seen.target == "/answer":
            return reply(json.dumps({"answer": asked[body["question"]].answer}).encode())
        prompt = "\n".join(one["content"] for one in body["messages"])
        message = {"role": "assistant", "content": demo.judge_answer(prompt)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return reply(json.dumps({"choices": [choice], "usage": {"total_tokens": len(prompt) // 4}}).encode())

    with peer(answer) as there:
        yield there


@contextmanager
def served() -> Iterator[Server]:
    """Serve Coalmine with a worker over an empty SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder=Path(folder), environment={}, with_worker=True)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def definitions(url: str, asked: Sequence[Question]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path and body of each definition."""
    canaries = [{"key": one.key, "query": one.query, "expected_chunks": expected(one)} for one in asked]
    yield "/v1/suites/evidence", {"canaries": canaries}
    yield (
        "/v1/retrievers/evidence",
        {
            "url": f"{url}/search",
            "request": {"method": "POST", "json": {"query": "{{ query }}"}},
            "response": {"hits": "hits", "id": "id", "text": "text"},
            "scorer": {"kind": "judged"},
            "answer": {"url": f"{url}/answer", "request": {"question": "{{ query }}"}, "path": "answer"},
        },
    )
    yield "/v1/judges/reader", {"url": f"{url}/v1", "model": "errs-as-stated", "questions": ["faithful"]}
    yield (
        "/v1/checks/evidence",
        {"suite": "evidence", "retriever": "evidence", "schedule": {"every": "1d"}, "judge": "reader"},
    )


def expected(one: Question) -> list[str]:
    """Name the chunks of a question."""
    return [f"{one.key.removesuffix('-changed')}-{place}" for place in range(len(one.chunks))]


def task(labels: int) -> Mapping[str, Any]:
    """Describe the task of labels."""
    answers = {"judge": "reader", "question": "faithful", "count": labels, "window_hours": 24}
    return {"suite": "evidence", "answers": answers, "overlap": 0.0}


def is_judged(server: Server) -> bool:
    """Whether the answers of the newest run are judged."""
    runs = server.send("GET", "/v1/checks/evidence/runs?limit=1")["items"]
    if not runs or runs[0]["finished_at"] is None:
        return False
    page = server.send("GET", f"/v1/runs/{runs[0]['id']}/answers?limit=1")
    return page["summary"] is not None and page["summary"]["measures"].get("faithful") is not None


def label(server: Server, asked: Mapping[str, Question]) -> int:
    """Label every answer of the task by what is true; how many there were."""
    count = 0
    found = server.send("GET", f"/v1/tasks/labels/next?annotator={quote('Ann')}")
    while (item := found["item"]) is not None:
        grade = int(asked[item["query"]].is_supported)
        body = json.dumps({"annotator": "Ann", "grade": grade})
        found = server.send("PUT", f"/v1/tasks/labels/items/{item['id']}/annotation", body)
        count += 1
    return count


def counted(server: Server) -> Any:
    """Return the measure of the judge's report once the labels count; None before."""
    [measure] = server.send("GET", "/v1/judges/reader/report")["measures"]
    return measure if measure["calibration"] is not None else None


def describe(measure: Mapping[str, Any], truth: float) -> None:
    """Print the report beside the truth. Raises AssertionError where it is not held."""
    found = measure["calibration"]
    print(f"{'':<14}{'known':>8}{'value':>10}{'low':>8}{'high':>8}")
    known = {"rate": truth, "sensitivity": demo.SENSITIVITY, "specificity": demo.SPECIFICITY}
    for name, value in known.items():
        one = found[name]
        print(f"{name:<14}{value:>8.3f}{one['value']:>10.3f}{one['low']:>8.3f}{one['high']:>8.3f}")
    kappa = found["kappa"]
    print(f"{'kappa':<14}{'':>8}{kappa['value']:>10.3f}{kappa['low']:>8.3f}{kappa['high']:>8.3f}")
    print(f"calibrated: {found['calibrated']}; {found['reason']}")
    assert found["calibrated"]
    assert all(found[name]["low"] <= value <= found[name]["high"] for name, value in known.items())


if __name__ == "__main__":
    given = dict(zip(("folder", "labels"), sys.argv[1:], strict=False))
    main(given.get("folder", "../shared/data/chunkeval"), int(given.get("labels", "200")))
