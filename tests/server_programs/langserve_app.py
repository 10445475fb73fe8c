"""An app of LangServe with a retriever over a corpus file: `langserve_app.py PORT CORPUS`."""

import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langserve import add_routes

from tests.server_programs.words import search


class Words(BaseRetriever):  # type: ignore[misc] # of an environment that mypy does not see
    """Searches by words."""

    corpus: Path

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        return [
            Document(id=hit["id"], page_content=hit["text"], metadata={"source": hit["source"]})
            for hit in search(self.corpus, query, 5)
        ]


app = FastAPI()
add_routes(app, Words(corpus=Path(sys.argv[2])), path="/search")
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]))
