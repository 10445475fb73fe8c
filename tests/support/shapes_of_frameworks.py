"""Answers of a plain endpoint and of frameworks, in the shapes their references show."""

from tests.support.preset_shapes import QUERY, Hit, K, Refusal, Shape

FRAMEWORKS = {
    "generic": Shape(
        written={"url": "https://search.example.org/ask"},
        url="https://search.example.org/ask",
        sent={"query": QUERY, "top_k": K},
        answer={
            "results": [
                {"id": "c1", "score": 0.5, "text": "Kept for 30 days.", "metadata": {"source": "logs.md"}},
                {"id": 2, "score": 0.25, "text": None},
            ]
        },
        hits=(
            Hit(id="c1", text="Kept for 30 days.", document="logs.md", score=0.5),
            Hit(id="2", text=None, score=0.25),
        ),
        nothing={"results": []},
        refusal=Refusal(status=500, body={"detail": "the index is gone"}),
        secret={"kind": "bearer", "token": "sesame"},
        headers=("authorization: Bearer sesame",),
    ),
    "haystack": Shape(
        written={"url": "http://hayhooks:1416", "options": {"pipeline": "retrieve"}},
        url="http://hayhooks:1416/retrieve/run",
        sent={"query": QUERY, "top_k": K},
        answer={
            "result": {
                "documents": [
                    {
                        "id": "8d3f",
                        "content": "Kept for 30 days.",
                        "blob": None,
                        "meta": {"file_path": "logs.md", "split_id": 4},
                        "score": 11.5,
                        "embedding": None,
                        "sparse_embedding": None,
                    },
                    {"id": "77ab", "content": "Audit trails stay a year.", "meta": {}, "score": 3.25},
                ]
            }
        },
        hits=(
            Hit(id="8d3f", text="Kept for 30 days.", document="logs.md", score=11.5),
            Hit(id="77ab", text="Audit trails stay a year.", score=3.25),
        ),
        nothing={"result": {"documents": []}},
        refusal=Refusal(status=500, body={"detail": "Pipeline execution failed: no such store"}),
    ),
    "langserve": Shape(
        written={"url": "http://chains:8000"},
        url="http://chains:8000/invoke",
        sent={"input": QUERY},
        answer={
            "output": [
                {
                    "id": None,
                    "metadata": {"source": "logs.md"},
                    "page_content": "Kept for 30 days.",
                    "type": "Document",
                },
                {"id": None, "metadata": {}, "page_content": "Audit trails stay a year.", "type": "Document"},
            ],
            "metadata": {"run_id": "0c0ffee0-0000-4000-8000-000000000000", "feedback_tokens": []},
        },
        hits=(
            Hit(id=None, text="Kept for 30 days.", document="logs.md"),
            Hit(id=None, text="Audit trails stay a year."),
        ),
        nothing={"output": [], "metadata": {"feedback_tokens": []}},
        refusal=Refusal(status=422, body={"detail": [{"loc": ["body", "input"], "msg": "Field required"}]}),
    ),
    "mcp": Shape(
        written={"url": "http://tools:8000", "request": {"tool": "search"}},
        url="http://tools:8000/mcp",
        sent={"query": QUERY, "top_k": K},
        answer={"result": [{"id": "c1", "text": "Kept for 30 days.", "source": "logs.md"}]},
        hits=(Hit(id="c1", text="Kept for 30 days.", document="logs.md"),),
        nothing={"result": []},
        refusal=None,
        secret={"token": "sesame"},
        headers=("authorization: Bearer sesame",),
    ),
}
