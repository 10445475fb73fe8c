"""An MCP server with one tool, which asks a search service: `mcp_process.py PORT ADDRESS`."""

import json
import sys
from typing import Any

import httpx2
from mcp.server import MCPServer

server = MCPServer("search")
client = httpx2.AsyncClient(timeout=30, trust_env=False)


@server.tool()
async def search(query: str, top_k: int = 10) -> list[dict[str, Any]]:
    """Search the documents."""
    answer = await client.post(sys.argv[2], content=json.dumps({"query": query, "top_k": top_k}))
    found: list[dict[str, Any]] = answer.raise_for_status().json()
    return found


server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
