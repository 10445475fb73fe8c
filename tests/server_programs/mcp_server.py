"""An MCP server with one tool over a corpus file: `mcp_server.py PORT CORPUS [stateless]`."""

import sys
from pathlib import Path
from typing import Any

from mcp.server import MCPServer

from tests.server_programs.words import search as search_words

server = MCPServer("words")
corpus = Path(sys.argv[2])
stateless = sys.argv[3:] == ["stateless"]


@server.tool()
def search(query: str, top_k: int = 10) -> list[dict[str, Any]]:
    """Search the corpus by words."""
    return search_words(corpus, query, top_k)


server.run(
    "streamable-http", host="127.0.0.1", port=int(sys.argv[1]), stateless_http=stateless, json_response=stateless
)
