"""A typed client of the REST API: a method for each operation, typed dictionaries in and out.

    client = Coalmine("http://127.0.0.1:8000", key="...")
    run = client.get_run("42")

The methods are made from the description of the API by `generate.py`; what stands before them is written by hand.
"""

# mypy: disable-error-code="no-any-return"
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, Literal, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from coalmine_client import rest_models as models

__all__ = ["ApiError", "Coalmine", "UnreachableError"]


class ApiError(Exception):
    """The service refused a request."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = problem
        """What the service says, as RFC 9457 has it; empty where it said nothing that can be read."""
        said = [f"{one.get('path', '')}: {one.get('message', '')}".lstrip(": ") for one in problem.get("errors") or ()]
        super().__init__(
            f"HTTP {status}: {'; '.join(said) or problem.get('detail') or problem.get('title') or 'refused'}"
        )


class UnreachableError(OSError):
    """No whole answer came from the address of the service; the message says why."""


class _NoRedirect(HTTPRedirectHandler):
    """Follow nothing: the key would go along to whoever the answer names."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, _msg: str, headers: HTTPMessage, newurl: str
    ) -> NoReturn:
        raise HTTPError(req.full_url, code, f"leads to another address, {newurl}", headers, fp)


def _quoted(part: str) -> str:
    return quote(str(part), safe="")


def _sent(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _problem(body: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


class Coalmine:
    """A service at an address; `key` is one of its API keys.

    Raises ApiError for what it refuses, UnreachableError where no answer comes, ValueError for an address that is none.
    """

    def __init__(self, url: str, key: str | None = None, *, timeout: float = 60.0) -> None:
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            near = "" if "://" in url else f"; write http://{url}"
            raise ValueError(f"'{url}' is no address of a service{near}")
        self._url = url.rstrip("/")
        self._key = key
        self._timeout = timeout
        self._opener = build_opener(_NoRedirect())

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
        body: Any = None,
    ) -> Iterator[Any]:
        given = {name: _sent(value) for name, value in (query or {}).items() if value is not None}
        asked = f"{self._url}{path}{'?' + urlencode(given, doseq=True) if given else ''}"
        fields = {name: value for name, value in (headers or {}).items() if value is not None}
        fields |= {} if self._key is None else {"authorization": f"Bearer {self._key}"}
        fields |= {} if body is None else {"content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = Request(asked, data=data, headers=fields, method=method)  # noqa: S310 - the caller's address
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                yield answer
        except HTTPError as error:
            with error:
                raise ApiError(error.code, _problem(error.read())) from None
        except (OSError, HTTPException) as error:
            why = error.reason if isinstance(error, URLError) else error
            raise UnreachableError(f"no answer from {self._url}: {getattr(why, 'strerror', None) or why}") from error

    def _json(self, method: str, path: str, **more: Any) -> Any:
        with self._open(method, path, **more) as answer:
            return json.loads(answer.read() or b"null")

    def _text(self, method: str, path: str, **more: Any) -> str:
        with self._open(method, path, **more) as answer:
            return str(answer.read().decode())

    def _lines(self, method: str, path: str, **more: Any) -> Iterator[str]:
        with self._open(method, path, **more) as answer:
            for line in answer:
                yield line.decode().rstrip("\r\n")

    def _send(self, method: str, path: str, **more: Any) -> None:
        with self._open(method, path, **more):
            pass

    # --- made by generate.py: a method for each operation of the API ---

    DESCRIPTION = "5f207b6a04a5e2c0e044e5aa0ccd86d7ce436e4cbd8075700af2254a84aa6c14"

    def livez(self) -> str:
        """Return that the process answers."""
        return self._text("GET", "/livez")

    def readyz(self) -> str:
        """Return whether requests can be served."""
        return self._text("GET", "/readyz")

    def scrape(self) -> str:
        """Return the metrics without reading the store."""
        return self._text("GET", "/metrics")

    def list_retrievers(self, *, after: str | None = None, limit: int | None = None) -> models.RetrieverPage:
        """List the retrievers."""
        return self._json("GET", "/v1/retrievers", query={"after": after, "limit": limit})

    def get_retriever(self, slug: str) -> models.Retriever:
        """Show a retriever."""
        return self._json("GET", f"/v1/retrievers/{_quoted(slug)}")

    def put_retriever(self, slug: str, body: models.RetrieverDocument) -> models.Retriever:
        """Create or change a retriever."""
        return self._json("PUT", f"/v1/retrievers/{_quoted(slug)}", body=body)

    def delete_retriever(self, slug: str) -> None:
        """Archive a retriever."""
        self._send("DELETE", f"/v1/retrievers/{_quoted(slug)}")

    def list_checks(self, *, after: str | None = None, limit: int | None = None) -> models.CheckPage:
        """List the checks."""
        return self._json("GET", "/v1/checks", query={"after": after, "limit": limit})

    def get_check(self, slug: str) -> models.Check:
        """Show a check."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}")

    def put_check(
        self, slug: str, body: models.CheckDocument | dict[str, Any], *, force: bool | None = None
    ) -> models.Check:
        """Create or change a check, together with a suite, retriever or hooks that are defined inline."""
        return self._json("PUT", f"/v1/checks/{_quoted(slug)}", query={"force": force}, body=body)

    def delete_check(self, slug: str) -> None:
        """Archive a check."""
        self._send("DELETE", f"/v1/checks/{_quoted(slug)}")

    def list_hooks(self, *, after: str | None = None, limit: int | None = None) -> models.HookPage:
        """List the hooks."""
        return self._json("GET", "/v1/hooks", query={"after": after, "limit": limit})

    def get_hook(self, slug: str) -> models.Hook:
        """Show a hook."""
        return self._json("GET", f"/v1/hooks/{_quoted(slug)}")

    def put_hook(self, slug: str, body: models.HookDocument, *, force: bool | None = None) -> models.Hook:
        """Create or change a hook."""
        return self._json("PUT", f"/v1/hooks/{_quoted(slug)}", query={"force": force}, body=body)

    def delete_hook(self, slug: str, *, force: bool | None = None) -> None:
        """Archive a hook that no check uses."""
        self._send("DELETE", f"/v1/hooks/{_quoted(slug)}", query={"force": force})

    def list_suites(self, *, after: str | None = None, limit: int | None = None) -> models.SuitePage:
        """List the suites."""
        return self._json("GET", "/v1/suites", query={"after": after, "limit": limit})

    def get_suite(self, suite: str) -> models.SuiteDetail:
        """Show a suite with its number of canaries and the damage they can detect."""
        return self._json("GET", f"/v1/suites/{_quoted(suite)}")

    def put_suite(self, suite: str, body: models.SuiteDocument) -> models.SuiteDetail:
        """Create or change a suite."""
        return self._json("PUT", f"/v1/suites/{_quoted(suite)}", body=body)

    def delete_suite(self, suite: str) -> None:
        """Archive a suite."""
        self._send("DELETE", f"/v1/suites/{_quoted(suite)}")

    def get_composition(self, suite: str) -> models.Composition:
        """Count the canaries of a suite by category and segment against targets, with notes where they are unusual."""
        return self._json("GET", f"/v1/suites/{_quoted(suite)}/composition")

    def list_canaries(self, suite: str, *, after: str | None = None, limit: int | None = None) -> models.CanaryPage:
        """List the canaries of a suite in their order."""
        return self._json("GET", f"/v1/suites/{_quoted(suite)}/canaries", query={"after": after, "limit": limit})

    def post_canaries(
        self, suite: str, body: models.CanaryDocument | list[models.CanaryDocument]
    ) -> models.Canary | models.SavedCanaries:
        """Create or change one canary, or a list of them, all or none."""
        return self._json("POST", f"/v1/suites/{_quoted(suite)}/canaries", body=body)

    def get_canary(self, suite: str, key: str) -> models.Canary:
        """Show a canary."""
        return self._json("GET", f"/v1/suites/{_quoted(suite)}/canaries/{_quoted(key)}")

    def put_canary(self, suite: str, key: str, body: models.CanaryDocument) -> models.Canary:
        """Create or change a canary."""
        return self._json("PUT", f"/v1/suites/{_quoted(suite)}/canaries/{_quoted(key)}", body=body)

    def delete_canary(self, suite: str, key: str) -> None:
        """Archive a canary."""
        self._send("DELETE", f"/v1/suites/{_quoted(suite)}/canaries/{_quoted(key)}")

    def import_documents(
        self,
        body: models.CanaryFile | list[models.CanaryFile] | models.SuiteFiles,
        *,
        format_: Literal[
            "coalmine", "trec", "beir", "csv", "quepid", "rre", "jsonl", "elasticsearch", "opensearch", "llamaindex"
        ]
        | None = None,
        suite: str | None = None,
        as_documents: bool | None = None,
        split: str | None = None,
        grades: str | None = None,
        column: list[str] | None = None,
        dry_run: bool | None = None,
    ) -> models.ImportOutcome:
        """Apply documents as API-managed objects, in one transaction."""
        return self._json(
            "POST",
            "/v1/import",
            query={
                "format": format_,
                "suite": suite,
                "as_documents": as_documents,
                "split": split,
                "grades": grades,
                "column": column,
                "dry_run": dry_run,
            },
            body=body,
        )

    def export_documents(
        self,
        *,
        format_: Literal[
            "coalmine", "trec", "beir", "csv", "quepid", "rre", "jsonl", "elasticsearch", "opensearch", "llamaindex"
        ]
        | None = None,
        suite: str | None = None,
    ) -> models.ExportedFiles:
        """Export all definitions as a canary file."""
        return self._json("GET", "/v1/export", query={"format": format_, "suite": suite})

    def get_report(
        self,
        run_id: str,
        *,
        format_: Literal["json", "markdown", "junit", "html"] | None = None,
        since: str | None = None,
        measures_version: str | None = None,
    ) -> models.Report:
        """Return the report of an ended run."""
        return self._json(
            "GET",
            f"/v1/runs/{_quoted(run_id)}/report",
            query={"format": format_, "since": since, "measures_version": measures_version},
        )

    def get_series(
        self,
        slug: str,
        *,
        measure: str | None = None,
        category: models.Category | None = None,
        from_: str | None = None,
        to: str | None = None,
        points: int | None = None,
        measures_version: str | None = None,
    ) -> models.MeasureSeries:
        """Show a measure over time, by default the last day."""
        return self._json(
            "GET",
            f"/v1/checks/{_quoted(slug)}/series",
            query={
                "measure": measure,
                "category": category,
                "from": from_,
                "to": to,
                "points": points,
                "measures_version": measures_version,
            },
        )

    def get_public_link(self, slug: str) -> models.PublicLink:
        """Show who made the public link of a check, and when."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/public-link")

    def post_public_link(self, slug: str) -> models.NewPublicLink:
        """Make a public link of a check, in the place of the one it has."""
        return self._json("POST", f"/v1/checks/{_quoted(slug)}/public-link")

    def delete_public_link(self, slug: str) -> None:
        """Revoke the public link of a check at once."""
        self._send("DELETE", f"/v1/checks/{_quoted(slug)}/public-link")

    def get_heat_map(
        self,
        slug: str,
        *,
        width: int | None = None,
        from_: str | None = None,
        to: str | None = None,
        columns: int | None = None,
        by: Literal["category", "tag"] | None = None,
        measures_version: str | None = None,
    ) -> models.HeatMap:
        """Show every canary of a check in every run, by default the newest 60 runs."""
        return self._json(
            "GET",
            f"/v1/checks/{_quoted(slug)}/heatmap",
            query={
                "width": width,
                "from": from_,
                "to": to,
                "columns": columns,
                "by": by,
                "measures_version": measures_version,
            },
        )

    def get_evidence_series(
        self, slug: str, *, from_: str | None = None, to: str | None = None, points: int | None = None
    ) -> models.EvidenceSeries:
        """Show the detector's evidence after each run of a check, and the threshold of its alarm."""
        return self._json(
            "GET", f"/v1/checks/{_quoted(slug)}/evidence-series", query={"from": from_, "to": to, "points": points}
        )

    def get_latency_series(
        self, slug: str, *, from_: str | None = None, to: str | None = None, points: int | None = None
    ) -> models.LatencySeries:
        """Show the median, 95th percentile and maximum of the latency of a check's probes over time, in seconds."""
        return self._json(
            "GET", f"/v1/checks/{_quoted(slug)}/latency-series", query={"from": from_, "to": to, "points": points}
        )

    def get_canary_history(self, slug: str, key: str, *, limit: int | None = None) -> models.CanaryHistory:
        """Show the states of a canary, newest first."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/canaries/{_quoted(key)}/history", query={"limit": limit})

    def list_alerts(
        self,
        *,
        check: str | None = None,
        state: Literal["pending", "firing", "recovering", "resolved"] | None = None,
        incident_id: int | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> models.AlertPage:
        """List alerts with their transitions, newest first."""
        return self._json(
            "GET",
            "/v1/alerts",
            query={"check": check, "state": state, "incident_id": incident_id, "after": after, "limit": limit},
        )

    def get_alert(self, alert_id: str) -> models.AlertDetail:
        """Show an alert with its transitions and deliveries."""
        return self._json("GET", f"/v1/alerts/{_quoted(alert_id)}")

    def acknowledge_alert(self, alert_id: str, body: models.AcknowledgeRequest | None = None) -> models.AlertDetail:
        """Acknowledge an open alert."""
        return self._json("POST", f"/v1/alerts/{_quoted(alert_id)}/acknowledge", body=body)

    def get_alerting(self, slug: str) -> models.CheckAlerting:
        """Explain why each rule of a check alerts or not."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/alerting")

    def test_hook(self, slug: str) -> models.Delivery:
        """Send a test message the way alerts are sent."""
        return self._json("POST", f"/v1/hooks/{_quoted(slug)}/test")

    def list_deliveries(
        self,
        *,
        hook: str | None = None,
        state: Literal["pending", "delivered", "dead", "cancelled"] | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> models.DeliveryPage:
        """List deliveries with their attempts, newest first."""
        return self._json("GET", "/v1/deliveries", query={"hook": hook, "state": state, "after": after, "limit": limit})

    def get_delivery(self, delivery_id: str) -> models.Delivery:
        """Show a delivery with its attempts."""
        return self._json("GET", f"/v1/deliveries/{_quoted(delivery_id)}")

    def replay_delivery(self, delivery_id: str) -> models.Delivery:
        """Put a dead delivery back into the outbox."""
        return self._json("POST", f"/v1/deliveries/{_quoted(delivery_id)}/replay")

    def replay_hook(self, slug: str) -> models.HookReplay:
        """Put all dead deliveries of a hook back into the outbox, except those overtaken by a later notification."""
        return self._json("POST", f"/v1/hooks/{_quoted(slug)}/replay")

    def post_run(
        self, slug: str, body: models.RunRequest | None = None, *, idempotency_key: str | None = None
    ) -> models.Run:
        """Run a check now."""
        return self._json(
            "POST", f"/v1/checks/{_quoted(slug)}/runs", headers={"idempotency-key": idempotency_key}, body=body
        )

    def list_runs(
        self, slug: str, *, after: int | None = None, limit: int | None = None, measures_version: str | None = None
    ) -> models.RunPage:
        """List the runs of a check, newest first."""
        return self._json(
            "GET",
            f"/v1/checks/{_quoted(slug)}/runs",
            query={"after": after, "limit": limit, "measures_version": measures_version},
        )

    def get_health(self, slug: str, *, measures_version: str | None = None) -> models.Run:
        """Show the newest ended run of a check."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/health", query={"measures_version": measures_version})

    def get_run(self, run_id: str, *, measures_version: str | None = None) -> models.Run:
        """Show a run."""
        return self._json("GET", f"/v1/runs/{_quoted(run_id)}", query={"measures_version": measures_version})

    def put_note(self, run_id: str, body: models.RunNoteRequest) -> models.RunNote:
        """Write a note on a run, in place of the one it has."""
        return self._json("PUT", f"/v1/runs/{_quoted(run_id)}/note", body=body)

    def delete_note(self, run_id: str) -> None:
        """Delete the note of a run, if it has one."""
        self._send("DELETE", f"/v1/runs/{_quoted(run_id)}/note")

    def list_results(
        self,
        run_id: str,
        *,
        verdict: models.Verdict | None = None,
        category: models.Category | None = None,
        tag: str | None = None,
        reason: models.Reason | None = None,
        outcome: models.Outcome | None = None,
        after: int | None = None,
        limit: int | None = None,
        measures_version: str | None = None,
    ) -> models.ResultPage:
        """List the results of an ended run with their evidence."""
        return self._json(
            "GET",
            f"/v1/runs/{_quoted(run_id)}/results",
            query={
                "verdict": verdict,
                "category": category,
                "tag": tag,
                "reason": reason,
                "outcome": outcome,
                "after": after,
                "limit": limit,
                "measures_version": measures_version,
            },
        )

    def post_rescoring(self, slug: str, body: models.RescoringRequest | None = None) -> models.Rescoring:
        """Re-score a check's recorded runs with its present judgments."""
        return self._json("POST", f"/v1/checks/{_quoted(slug)}/rescorings", body=body)

    def list_rescorings(self, slug: str, *, after: int | None = None, limit: int | None = None) -> models.RescoringPage:
        """List the re-scorings of a check, newest first."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/rescorings", query={"after": after, "limit": limit})

    def get_rescoring(self, rescoring_id: str) -> models.Rescoring:
        """Show a re-scoring."""
        return self._json("GET", f"/v1/rescorings/{_quoted(rescoring_id)}")

    def follow_all(self, *, seconds: float | None = None) -> Iterator[str]:
        """Stream `run_ended` {check, run} and `alert_changed` {check, alert} from now on."""
        return self._lines("GET", "/v1/events", query={"seconds": seconds})

    def follow_run(self, run_id: str, *, seconds: float | None = None) -> Iterator[str]:
        """Stream `progress` {done, total, failed, status} of a run, now and on changes, then `ended` with its verdict."""
        return self._lines("GET", f"/v1/runs/{_quoted(run_id)}/events", query={"seconds": seconds})

    def follow_rescoring(self, rescoring_id: str, *, seconds: float | None = None) -> Iterator[str]:
        """Stream `progress` {done, total, status} of a re-scoring in runs, then `ended` with its measures version."""
        return self._lines("GET", f"/v1/rescorings/{_quoted(rescoring_id)}/events", query={"seconds": seconds})

    def follow_task(self, slug: str, *, seconds: float | None = None) -> Iterator[str]:
        """Stream `progress` {done, total, failed, status} of a task's pool in canaries, then `ended` with its `items`."""
        return self._lines("GET", f"/v1/tasks/{_quoted(slug)}/events", query={"seconds": seconds})

    def get_run_facts(self, run_id: str) -> models.RunFacts:
        """Show what a run read of the index."""
        return self._json("GET", f"/v1/runs/{_quoted(run_id)}/facts")

    def list_facts(self, slug: str, *, after: int | None = None, limit: int | None = None) -> models.IndexRunPage:
        """List what the runs of a check read of the index, newest first."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/facts", query={"after": after, "limit": limit})

    def compare(
        self, *, a: str, b: str, winner: models.Side | None = None, after: int | None = None, limit: int | None = None
    ) -> models.ComparisonPage:
        """Compare two runs, checks or retrievers."""
        return self._json(
            "GET", "/v1/compare", query={"a": a, "b": b, "winner": winner, "after": after, "limit": limit}
        )

    def diff_runs(
        self,
        before: str,
        now: str,
        *,
        change: models.Change | None = None,
        after: int | None = None,
        limit: int | None = None,
        measures_version: str | None = None,
    ) -> models.RunDiffPage:
        """Compare two runs, the older one first."""
        return self._json(
            "GET",
            f"/v1/runs/{_quoted(before)}/diff/{_quoted(now)}",
            query={"change": change, "after": after, "limit": limit, "measures_version": measures_version},
        )

    def get_baseline(self, slug: str) -> models.Baseline:
        """Show the baseline of a check."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/baseline")

    def put_baseline(self, slug: str, body: models.BaselineRequest) -> models.Baseline:
        """Pin a run, `{"run"."""
        return self._json("PUT", f"/v1/checks/{_quoted(slug)}/baseline", body=body)

    def delete_baseline(self, slug: str) -> None:
        """Let the baseline follow the runs again."""
        self._send("DELETE", f"/v1/checks/{_quoted(slug)}/baseline")

    def call_not_normal(self, slug: str, habit: str, body: models.NotNormalRequest | None = None) -> models.Baseline:
        """Call a habit not normal."""
        return self._json("POST", f"/v1/checks/{_quoted(slug)}/habits/{_quoted(habit)}/not-normal", body=body)

    def get_suggested_rules(self, slug: str) -> models.SuggestedRules:
        """Suggest bounds from the baseline."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/suggested-rules")

    def get_quality(self, slug: str, *, format_: Literal["json", "markdown"] | None = None) -> models.QualityReport:
        """Evaluate the checklist of retrieval quality by the last answer of each canary."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/quality", query={"format": format_})

    def try_retriever(self, slug: str, body: models.TryRequest) -> models.Trial:
        """Ask a retriever one query."""
        return self._json("POST", f"/v1/retrievers/{_quoted(slug)}/try", body=body)

    def get_embedding(self, slug: str) -> models.Embedder:
        """Show what runs found of a retriever's embedder."""
        return self._json("GET", f"/v1/retrievers/{_quoted(slug)}/embedding")

    def delete_embedding(self, slug: str) -> None:
        """Accept the embedder as it is now."""
        self._send("DELETE", f"/v1/retrievers/{_quoted(slug)}/embedding")

    def list_silences(self, *, after: str | None = None, limit: int | None = None) -> models.SilencePage:
        """List the silences, each with its state and the open alerts it silences."""
        return self._json("GET", "/v1/silences", query={"after": after, "limit": limit})

    def get_silence(self, slug: str) -> models.Silence:
        """Show a silence."""
        return self._json("GET", f"/v1/silences/{_quoted(slug)}")

    def put_silence(self, slug: str, body: models.SilenceDocument) -> models.Silence:
        """Create or change a silence or maintenance window."""
        return self._json("PUT", f"/v1/silences/{_quoted(slug)}", body=body)

    def delete_silence(self, slug: str) -> None:
        """End a silence."""
        self._send("DELETE", f"/v1/silences/{_quoted(slug)}")

    def list_tasks(self, *, after: str | None = None, limit: int | None = None) -> models.TaskPage:
        """List the annotation tasks."""
        return self._json("GET", "/v1/tasks", query={"after": after, "limit": limit})

    def get_task(self, slug: str) -> models.TaskDetail:
        """Show a task, and how far its pool is."""
        return self._json("GET", f"/v1/tasks/{_quoted(slug)}")

    def put_task(self, slug: str, body: models.TaskDocument) -> models.TaskDetail:
        """Create a task, or change one whose pool nobody has asked for."""
        return self._json("PUT", f"/v1/tasks/{_quoted(slug)}", body=body)

    def delete_task(self, slug: str) -> None:
        """Archive a task."""
        self._send("DELETE", f"/v1/tasks/{_quoted(slug)}")

    def pool_task(self, slug: str) -> models.TaskDetail:
        """Ask the retrievers for the chunks to grade, in the background and within their limits."""
        return self._json("POST", f"/v1/tasks/{_quoted(slug)}/pool")

    def get_agreement(self, slug: str) -> models.Agreement:
        """Show how far annotators agree."""
        return self._json("GET", f"/v1/tasks/{_quoted(slug)}/agreement")

    def get_budget(self, slug: str) -> models.Budget:
        """Show what is done and what is left."""
        return self._json("GET", f"/v1/tasks/{_quoted(slug)}/budget")

    def get_pooled_recall(self, slug: str) -> models.Recall:
        """Estimate the recall of the retrievers beyond the pool."""
        return self._json("GET", f"/v1/tasks/{_quoted(slug)}/recall")

    def post_regrade(self, slug: str) -> models.GradedAgain:
        """Have everybody grade the texts that no retriever ranked and one person alone called relevant."""
        return self._json("POST", f"/v1/tasks/{_quoted(slug)}/regrade")

    def list_disagreements(
        self, slug: str, *, decided: bool | None = None, after: str | None = None, limit: int | None = None
    ) -> models.DisagreementPage:
        """List the items that annotators grade on both sides of relevant, or two apart, and that wait for a decision."""
        return self._json(
            "GET",
            f"/v1/tasks/{_quoted(slug)}/disagreements",
            query={"decided": decided, "after": after, "limit": limit},
        )

    def put_adjudication(self, slug: str, item: str, body: models.AdjudicationRequest) -> None:
        """Decide the grade of an item, whatever its annotators say."""
        self._send("PUT", f"/v1/tasks/{_quoted(slug)}/items/{_quoted(item)}/adjudication", body=body)

    def adopt_task(self, slug: str, *, dry_run: bool | None = None) -> models.Adoption:
        """Make what annotators agree on the judgments of the canaries."""
        return self._json("POST", f"/v1/tasks/{_quoted(slug)}/adopt", query={"dry_run": dry_run})

    def get_annotations(self, slug: str, *, judge: bool | None = None) -> str:
        """Export the annotations of people as CSV, or of judges."""
        return self._text("GET", f"/v1/tasks/{_quoted(slug)}/annotations", query={"judge": judge})

    def post_annotations(
        self, slug: str, body: models.TextFiles, *, judge: bool | None = None
    ) -> models.ImportedAnnotations:
        """Store annotations of CSV files with these columns, all or none."""
        return self._json("POST", f"/v1/tasks/{_quoted(slug)}/annotations", query={"judge": judge}, body=body)

    def get_next_item(self, slug: str, *, annotator: str | None = None) -> models.NextItem:
        """Show the next item to grade and the one after it, without rank, score, retriever or stratum."""
        return self._json("GET", f"/v1/tasks/{_quoted(slug)}/next", query={"annotator": annotator})

    def get_item(self, slug: str, item: str, *, annotator: str | None = None) -> models.Item:
        """Show an item, and the grade one has given it."""
        return self._json("GET", f"/v1/tasks/{_quoted(slug)}/items/{_quoted(item)}", query={"annotator": annotator})

    def put_annotation(self, slug: str, item: str, body: models.AnnotationRequest) -> models.NextItem:
        """Grade an item, or skip it."""
        return self._json("PUT", f"/v1/tasks/{_quoted(slug)}/items/{_quoted(item)}/annotation", body=body)

    def undo_annotation(self, slug: str, body: models.UndoRequest | None = None) -> models.NextItem:
        """Take one's last annotation back."""
        return self._json("POST", f"/v1/tasks/{_quoted(slug)}/undo", body=body)

    def list_corpora(self) -> models.CorpusPage:
        """List the corpora."""
        return self._json("GET", "/v1/corpora")

    def get_corpus(self, corpus: str) -> models.Corpus:
        """Show a corpus."""
        return self._json("GET", f"/v1/corpora/{_quoted(corpus)}")

    def post_texts(self, corpus: str, body: models.TextFiles) -> models.Corpus:
        """Add the texts of JSON lines, `{"_id"."""
        return self._json("POST", f"/v1/corpora/{_quoted(corpus)}", body=body)

    def delete_corpus(self, corpus: str) -> None:
        """Delete a corpus."""
        self._send("DELETE", f"/v1/corpora/{_quoted(corpus)}")

    def list_plants(self, slug: str, *, after: int | None = None, limit: int | None = None) -> models.Plants:
        """List the planted documents of a check, newest first."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/plants", query={"after": after, "limit": limit})

    def post_plant(self, slug: str) -> models.Plant:
        """Plant a document now, in the background."""
        return self._json("POST", f"/v1/checks/{_quoted(slug)}/plants")

    def list_traffic(self, suite: str) -> models.TrafficPage:
        """Show how much traffic a suite has of each retriever."""
        return self._json("GET", f"/v1/suites/{_quoted(suite)}/traffic")

    def post_traffic(
        self, suite: str, body: models.TextFiles, *, retriever: str, idempotency_key: str | None = None
    ) -> models.ReceivedTraffic:
        """Add queries of users."""
        return self._json(
            "POST",
            f"/v1/suites/{_quoted(suite)}/traffic",
            query={"retriever": retriever},
            headers={"idempotency-key": idempotency_key},
            body=body,
        )

    def delete_traffic(self, suite: str, body: models.ForgetRequest | None = None) -> models.ForgottenTraffic:
        """Forget the traffic of a suite at once."""
        return self._json("DELETE", f"/v1/suites/{_quoted(suite)}/traffic", body=body)

    def post_reach(self, suite: str, body: models.ReachRequest) -> models.TrafficReach:
        """Draw a sample of the traffic and ask the retriever, in the background and within its limits."""
        return self._json("POST", f"/v1/suites/{_quoted(suite)}/reach", body=body)

    def get_reach(self, suite: str, *, retriever: str) -> models.TrafficReach:
        """Show the share of real traffic that the canaries of a suite stand for, with its interval."""
        return self._json("GET", f"/v1/suites/{_quoted(suite)}/reach", query={"retriever": retriever})

    def post_suggestions(self, suite: str, body: models.SuggestionsRequest) -> models.TaskDetail:
        """Take suggestions up."""
        return self._json("POST", f"/v1/suites/{_quoted(suite)}/suggestions", body=body)

    def list_suggestions(self, suite: str, *, retriever: str, limit: int | None = None) -> models.SuggestionPage:
        """List queries of users that no canary stands for."""
        return self._json(
            "GET", f"/v1/suites/{_quoted(suite)}/suggestions", query={"retriever": retriever, "limit": limit}
        )

    def post_spans(
        self, suite: str, body: dict[str, Any], *, retriever: str | None = None, share: float | None = None
    ) -> dict[str, Any]:
        """Add the queries of retrievals among the spans of an OpenTelemetry exporter (OTLP over HTTP), packed or not."""
        return self._json(
            "POST", f"/v1/otlp/{_quoted(suite)}/v1/traces", query={"retriever": retriever, "share": share}, body=body
        )

    def get_diagnosis(self, slug: str, key: str) -> models.Diagnosis:
        """Show the last diagnosis of a canary."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/canaries/{_quoted(key)}/diagnosis")

    def post_diagnosis(self, slug: str, key: str) -> models.Diagnosis:
        """Diagnose a canary as of the newest run, by about seven requests to the retriever."""
        return self._json("POST", f"/v1/checks/{_quoted(slug)}/canaries/{_quoted(key)}/diagnosis")

    def list_reanchors(
        self,
        slug: str,
        *,
        state: models.ReanchorState | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> models.ReanchorPage:
        """List the proposals for judgments whose chunks were renamed, newest first."""
        return self._json(
            "GET", f"/v1/checks/{_quoted(slug)}/reanchors", query={"state": state, "after": after, "limit": limit}
        )

    def post_reanchors(self, slug: str, body: models.ReanchorRequest) -> models.ReanchorDecision:
        """Accept or reject proposals, `{"accept"."""
        return self._json("POST", f"/v1/checks/{_quoted(slug)}/reanchors", body=body)

    def get_answers(self, run_id: str, *, after: int | None = None, limit: int | None = None) -> models.RunAnswersPage:
        """List the generated answers of a run, the worst by its judge first, with the claims the judge found."""
        return self._json("GET", f"/v1/runs/{_quoted(run_id)}/answers", query={"after": after, "limit": limit})

    def post_feedback(self, slug: str, body: models.FeedbackRequest) -> models.ReceivedFeedback:
        """Add what users said of answers."""
        return self._json("POST", f"/v1/checks/{_quoted(slug)}/feedback", body=body)

    def get_feedback(self, slug: str, *, after: str | None = None, limit: int | None = None) -> models.FeedbackPage:
        """Show what users said of the answers of a check."""
        return self._json("GET", f"/v1/checks/{_quoted(slug)}/feedback", query={"after": after, "limit": limit})

    def delete_feedback(self, slug: str) -> models.ForgottenFeedback:
        """Delete all that users said of the answers of a check, at once."""
        return self._json("DELETE", f"/v1/checks/{_quoted(slug)}/feedback")

    def list_judges(self, *, after: str | None = None, limit: int | None = None) -> models.JudgePage:
        """List the judges of answers."""
        return self._json("GET", "/v1/judges", query={"after": after, "limit": limit})

    def get_judge(self, slug: str) -> models.Judge:
        """Show a judge."""
        return self._json("GET", f"/v1/judges/{_quoted(slug)}")

    def put_judge(self, slug: str, body: models.JudgeDocument) -> models.Judge:
        """Create or change a judge, a language model that reads answers."""
        return self._json("PUT", f"/v1/judges/{_quoted(slug)}", body=body)

    def delete_judge(self, slug: str) -> None:
        """Archive a judge that no check uses."""
        self._send("DELETE", f"/v1/judges/{_quoted(slug)}")

    def get_judge_report(self, slug: str) -> models.JudgeReport:
        """Show how far the numbers of a judge can be trusted."""
        return self._json("GET", f"/v1/judges/{_quoted(slug)}/report")

    def list_experiments(self, *, after: str | None = None, limit: int | None = None) -> models.ExperimentPage:
        """List the experiments, each in its current epoch."""
        return self._json("GET", "/v1/experiments", query={"after": after, "limit": limit})

    def get_experiment(self, slug: str) -> models.ExperimentDetail:
        """Show an experiment."""
        return self._json("GET", f"/v1/experiments/{_quoted(slug)}")

    def put_experiment(self, slug: str, body: models.ExperimentDocument) -> models.ExperimentDetail:
        """Create an experiment, or begin an epoch of it with what has changed."""
        return self._json("PUT", f"/v1/experiments/{_quoted(slug)}", body=body)

    def delete_experiment(self, slug: str) -> None:
        """Archive an experiment and delete its units at once."""
        self._send("DELETE", f"/v1/experiments/{_quoted(slug)}")

    def stop_experiment(self, slug: str) -> models.ExperimentDetail:
        """Stop an experiment."""
        return self._json("POST", f"/v1/experiments/{_quoted(slug)}/stop")

    def post_exposures(self, slug: str, body: list[models.Exposure]) -> models.ReceivedExposures:
        """Take in which units were exposed, at most 10,000 a request."""
        return self._json("POST", f"/v1/experiments/{_quoted(slug)}/exposures", body=body)

    def post_outcomes(self, slug: str, body: list[models.UnitOutcome]) -> models.ReceivedOutcomes:
        """Take in outcomes of exposed units, at most 10,000 a request."""
        return self._json("POST", f"/v1/experiments/{_quoted(slug)}/outcomes", body=body)

    def list_shadows(self, *, after: str | None = None, limit: int | None = None) -> models.ShadowPage:
        """List the shadows, each over all its hours."""
        return self._json("GET", "/v1/shadows", query={"after": after, "limit": limit})

    def get_shadow(self, slug: str) -> models.ShadowDetail:
        """Show how far a candidate's answers differ from those that users get, by the hour, and what people preferred."""
        return self._json("GET", f"/v1/shadows/{_quoted(slug)}")

    def put_shadow(self, slug: str, body: models.ShadowDocument) -> models.ShadowDetail:
        """Define a shadow."""
        return self._json("PUT", f"/v1/shadows/{_quoted(slug)}", body=body)

    def delete_shadow(self, slug: str) -> None:
        """Delete a shadow."""
        self._send("DELETE", f"/v1/shadows/{_quoted(slug)}")

    def list_pairs(self, slug: str, *, limit: int | None = None) -> models.DifferentPairPage:
        """List the queries of users whose answers differ most, for keys that may write."""
        return self._json("GET", f"/v1/shadows/{_quoted(slug)}/pairs", query={"limit": limit})

    def post_pairs(
        self, slug: str, body: list[models.ShadowPair], *, idempotency_key: str | None = None
    ) -> models.ReceivedPairs:
        """Take in what users got for a query and what the candidate gave, at most 1,000 a request."""
        return self._json(
            "POST", f"/v1/shadows/{_quoted(slug)}/pairs", headers={"idempotency-key": idempotency_key}, body=body
        )

    def list_interleavings(self, *, after: str | None = None, limit: int | None = None) -> models.InterleavingPage:
        """List the interleavings, each in its current epoch."""
        return self._json("GET", "/v1/interleavings", query={"after": after, "limit": limit})

    def get_interleaving(self, slug: str) -> models.Interleaving:
        """Show which ranking units prefer, the decision and why."""
        return self._json("GET", f"/v1/interleavings/{_quoted(slug)}")

    def put_interleaving(self, slug: str, body: models.InterleavingDocument) -> models.Interleaving:
        """Create an interleaving, or begin an epoch of it with what has changed."""
        return self._json("PUT", f"/v1/interleavings/{_quoted(slug)}", body=body)

    def delete_interleaving(self, slug: str) -> None:
        """Delete an interleaving and its clicks."""
        self._send("DELETE", f"/v1/interleavings/{_quoted(slug)}")

    def post_lists(self, slug: str, body: models.ListsRequest) -> models.MergedList:
        """Merge two rankings for a unit by team draft."""
        return self._json("POST", f"/v1/interleavings/{_quoted(slug)}/lists", body=body)

    def post_clicks(self, slug: str, body: list[models.Click]) -> models.ReceivedClicks:
        """Take in clicks, at most 10,000 a request."""
        return self._json("POST", f"/v1/interleavings/{_quoted(slug)}/clicks", body=body)

    def list_promotions(self, *, after: str | None = None, limit: int | None = None) -> models.PromotionPage:
        """List the promotions, each with its gates."""
        return self._json("GET", "/v1/promotions", query={"after": after, "limit": limit})

    def get_promotion(self, slug: str) -> models.Promotion:
        """Show where a candidate stands."""
        return self._json("GET", f"/v1/promotions/{_quoted(slug)}")

    def put_promotion(self, slug: str, body: models.PromotionDocument) -> models.Promotion:
        """Hold a candidate to three gates."""
        return self._json("PUT", f"/v1/promotions/{_quoted(slug)}", body=body)

    def delete_promotion(self, slug: str) -> None:
        """Delete a promotion with its waivers."""
        self._send("DELETE", f"/v1/promotions/{_quoted(slug)}")

    def put_waiver(self, slug: str, gate: str, body: models.WaiverRequest) -> models.Promotion:
        """Waive a gate."""
        return self._json("PUT", f"/v1/promotions/{_quoted(slug)}/waivers/{_quoted(gate)}", body=body)

    def delete_waiver(self, slug: str, gate: str) -> None:
        """Withdraw the waiver of a gate."""
        self._send("DELETE", f"/v1/promotions/{_quoted(slug)}/waivers/{_quoted(gate)}")
