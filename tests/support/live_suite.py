"""A small suite for real retrievers over the demo's corpus, measured as the one-shot check measures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.base.addresses import retriever_policy
from app.base.documents.fields import parse_document
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.check_documents import CheckDocument
from app.demo.corpus import BUNDLED, Chunk, read_corpus
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.documents.retrievers import RetrieverDocument
from app.runs.service.gate import Target, measure
from tests.support.fakes import FakeClock

CORPUS: tuple[Chunk, ...] = read_corpus()

WITHDRAWN = "soc2_report_doc"
"""What the first canary expects, and the tests take away."""

CANARIES: tuple[Mapping[str, Any], ...] = tuple(
    {
        "key": key,
        "query": query,
        "expected_chunks": [chunk, {"text": next(one.text for one in CORPUS if one.id == chunk)}],
        "min_relevance_score": 0.2,
    }
    for key, query, chunk in (
        ("soc2-report", "Where can I download the current SOC 2 report?", WITHDRAWN),
        ("trial-length", "How long is the free trial and do I need a credit card?", "free_trial_doc"),
        ("install-cli", "How do I install the command line tool on macOS?", "cli_install_doc"),
        (
            "daylight-saving",
            "What happens to a schedule when clocks go back for daylight saving?",
            "schedule_timezone_doc",
        ),
    )
)
KEYS = tuple(canary["key"] for canary in CANARIES)

SOUND = dict.fromkeys(KEYS, ("ok", "healthy", ()))
"""What `asked` gives where everything is found."""
WITHOUT_ONE = SOUND | {KEYS[0]: ("ok", "degraded", ("missing",))}
"""What it gives where the withdrawn chunk is gone."""


def write_corpus(file: Path, *, without: str | None = None) -> Path:
    """Write the corpus as a file for servers, a chunk left out where one is named."""
    lines = [line for line in BUNDLED.read_text(encoding="utf-8").splitlines() if f'"id": "{without}"' not in line]
    assert len(lines) == len(CORPUS) - (without is not None)
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def report(retriever: Mapping[str, Any]) -> dict[str, Any]:
    """Put the suite to a retriever, described as users do, and give the report."""
    target = Target(
        check=parse_document(
            CheckDocument, {"slug": "live", "suite": "live", "retriever": "live", "schedule": {"every": "5m"}}
        ),
        suite=parse_document(SuiteDocument, {"slug": "live", "canaries": CANARIES}),
        retriever=parse_document(RetrieverDocument, {"slug": "live", **retriever}),
    )
    probe = RetrieverProbe(retriever_policy(), "coalmine/test")
    return {**measure(target, probe, run_id="live-run", clock=FakeClock())}


def asked(retriever: Mapping[str, Any]) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Put the suite to a retriever and give outcome, verdict and reasons of each canary."""
    results = report(retriever)["results"]
    return {result["key"]: (result["outcome"], result["verdict"], tuple(result["reasons"])) for result in results}
