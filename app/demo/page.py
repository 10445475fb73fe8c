"""The demo's only page: its state, and the commands that break and heal it. It fetches nothing."""

import html
import json
from collections.abc import Mapping

from app.demo.faults import EFFECTS, SIZES, FaultKind


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
