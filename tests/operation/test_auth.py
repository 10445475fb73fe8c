"""Who may: every route by scope, nothing beside the exempt ones without a key, and no way around."""

import base64
import re
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
import sqlalchemy as sa
from anyio.to_thread import current_default_thread_limiter
from cryptography.fernet import Fernet
from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import iter_route_contexts

from app.base.api.requests import EXEMPT, PUBLIC, SESSION_COOKIE, Attempts, Route, api_router, csrf_token, open_session
from app.base.db import keys
from app.base.db.engine import from_us
from app.base.db.keys import Scope, ended_sessions
from app.base.errors import ConfigurationError
from app.base.values import replace
from app.catalog import store as catalog
from app.catalog.service import references
from app.config import Settings
from app.hooks.domain import Receipt
from app.main import guarded, open_service
from app.reports.service.public_links import digest_of
from app.reports.store import save_public_link
from tests.support.api_service import CANARIES, CHECK, HOOK_SECRET, RETRIEVER, Api, api, bearer
from tests.support.filled_service import app_of
from tests.support.living import coalmine
from tests.support.planted import PLANT
from tests.support.present import present
from tests.support.remembered_habit import HABIT, remember_habit

SECRET_KEY = "a-secret-key-for-tests-only-0123456789"
METRICS_TOKEN = "a-token-only-prometheus-knows"
JUDGE: dict[str, str] = {"url": "http://judge.test/v1", "model": "small"}
HOOK: dict[str, str] = {"kind": "webhook", "url": "https://example.org/", "secret": HOOK_SECRET}
SILENCE = {"severities": ["warning"], "ends": "2026-01-01T00:00:00Z"}
TASK = {"suite": "docs", "retrievers": ["search"]}
CORPUS = {"files": {"corpus.jsonl": '{"_id": "d1", "text": "A text"}'}}
EXPERIMENT = {"arms": [{"name": "vector", "share": 0.95}, {"name": "hybrid", "share": 0.05}]}
PAIRS = [{"query": "How long is data kept?", "a": ["c1"], "b": ["c2"]}]
PROMOTION = {"current": "docs", "candidate": "docs-again"}
TRAFFIC = {"files": {"traffic.jsonl": '{"query": "How long is data kept?"}'}}
SPANS: dict[str, Any] = {"resourceSpans": []}
SUGGESTIONS = {"retriever": "search", "task": "gaps", "queries": ["Who pays for support?"]}
ITEM = "ITEM"
"""Stands for an item of the task `truth`."""
ANNOTATE, INGEST, READ, WRITE, ADMIN = Scope.ANNOTATE, Scope.INGEST, Scope.READ, Scope.WRITE, Scope.ADMIN


@dataclass(frozen=True)
class Form:
    """A body as a browser's form sends it."""

    fields: dict[str, str]


# Every route there is: the scope it needs (None = nobody asks), an address of it that exists, and a body it takes.
ROUTES: dict[tuple[str, str], tuple[Scope | None, str, Any]] = {
    ("GET", "/livez"): (None, "/livez", None),
    ("GET", "/readyz"): (None, "/readyz", None),
    ("GET", "/login"): (None, "/login", None),
    ("POST", "/login"): (None, "/login", None),
    ("GET", "/login/oidc"): (None, "/login/oidc", None),
    ("GET", "/login/oidc/callback"): (None, "/login/oidc/callback", None),
    ("POST", "/logout"): (READ, "/logout", None),
    ("GET", "/keys"): (ADMIN, "/keys", None),
    ("POST", "/keys"): (ADMIN, "/keys", Form({"name": "newly", "scope": "read"})),
    ("POST", "/keys/{prefix}/successor"): (ADMIN, "/keys/spare/successor", None),
    ("POST", "/keys/{prefix}/revoke"): (ADMIN, "/keys/spare/revoke", None),
    ("GET", "/metrics"): (READ, "/metrics", None),
    ("GET", "/openapi.json"): (READ, "/openapi.json", None),
    ("GET", "/docs"): (READ, "/docs", None),
    ("GET", "/"): (READ, "/", None),
    ("GET", "/checks/{slug}"): (READ, "/checks/docs", None),
    ("POST", "/checks/{slug}/runs"): (WRITE, "/checks/docs/runs", None),
    ("GET", "/checks/{slug}/quality"): (READ, "/checks/docs/quality", None),
    ("GET", "/checks/{slug}/facts"): (READ, "/checks/docs/facts", None),
    ("GET", "/v1/checks/{slug}/facts"): (READ, "/v1/checks/docs/facts", None),
    ("GET", "/v1/runs/{run_id}/facts"): (READ, "/v1/runs/1/facts", None),
    ("GET", "/checks/{slug}/plants"): (READ, "/checks/docs/plants", None),
    ("POST", "/checks/{slug}/plants"): (WRITE, "/checks/planted/plants", Form({})),
    ("GET", "/v1/checks/{slug}/plants"): (READ, "/v1/checks/docs/plants", None),
    ("POST", "/v1/checks/{slug}/plants"): (WRITE, "/v1/checks/planted-too/plants", None),
    ("GET", "/badge/{check}.svg"): (READ, "/badge/docs.svg", None),
    ("GET", "/runs/{run_id}"): (READ, "/runs/1", None),
    ("POST", "/runs/{run_id}/note"): (WRITE, "/runs/1/note", Form({"text": "index rebuilt"})),
    ("GET", "/runs/compare"): (READ, "/runs/compare?before=1&now=2", None),
    ("GET", "/runs/{before}/diff/{now}"): (READ, "/runs/1/diff/2", None),
    ("GET", "/compare"): (READ, "/compare?a=run:1&b=run:2", None),
    ("GET", "/compare/canary"): (READ, "/compare/canary?a=run:1&b=run:2&key=oauth", None),
    ("GET", "/alerts"): (READ, "/alerts", None),
    ("GET", "/alerts/{alert_id}"): (READ, "/alerts/1", None),
    ("GET", "/search"): (READ, "/search?q=x", None),
    ("GET", "/help"): (READ, "/help", None),
    ("GET", "/help/{name:path}"): (READ, "/help/rules", None),
    ("GET", "/answers"): (READ, "/answers", None),
    ("GET", "/reports"): (READ, "/reports", None),
    ("GET", "/traffic"): (READ, "/traffic", None),
    ("GET", "/incidents/{incident_id}"): (READ, "/incidents/1", None),
    ("POST", "/alerts/{alert_id}/acknowledge"): (WRITE, "/alerts/1/acknowledge", None),
    ("POST", "/alerts/{alert_id}/diagnosis"): (WRITE, "/alerts/1/diagnosis", None),
    ("GET", "/hooks"): (READ, "/hooks", None),
    ("GET", "/hooks/{slug}"): (READ, "/hooks/ops", None),
    ("GET", "/new-hook"): (READ, "/new-hook", None),
    ("POST", "/new-hook"): (ADMIN, "/new-hook", Form({"kind": "webhook", "slug": "newly", "url": HOOK["url"]})),
    ("POST", "/new-hook/address"): (ADMIN, "/new-hook/address", Form({"kind": "webhook", "url": HOOK["url"]})),
    ("GET", "/hooks/{slug}/edit"): (READ, "/hooks/ops/edit", None),
    ("POST", "/hooks/{slug}/edit"): (ADMIN, "/hooks/spare/edit", Form({"url": HOOK["url"]})),
    ("POST", "/hooks/{slug}/archive"): (ADMIN, "/hooks/spare/archive", None),
    ("POST", "/hooks/{slug}/test"): (ADMIN, "/hooks/ops/test", None),
    ("POST", "/hooks/{slug}/replay"): (WRITE, "/hooks/ops/replay", None),
    ("POST", "/hooks/{slug}/checks"): (WRITE, "/hooks/ops/checks", Form({"before": "", "checks": "spare"})),
    ("GET", "/deliveries"): (READ, "/deliveries", None),
    ("POST", "/deliveries/{delivery_id}/replay"): (WRITE, "/deliveries/2/replay", None),
    ("GET", "/silences"): (READ, "/silences", None),
    ("GET", "/silences/{slug}"): (READ, "/silences/spare", None),
    ("GET", "/new-silence"): (READ, "/new-silence", None),
    ("POST", "/new-silence"): (WRITE, "/new-silence", Form({"slug": "newly", "severities": "warning", "for": "1h"})),
    ("GET", "/silences/{slug}/edit"): (READ, "/silences/spare/edit", None),
    ("POST", "/silences/{slug}/edit"): (WRITE, "/silences/spare/edit", Form({"severities": "warning", "for": "1h"})),
    ("POST", "/silences/{slug}/end"): (WRITE, "/silences/spare/end", None),
    ("POST", "/checks/{slug}/suggested-rules"): (
        WRITE,
        "/checks/spare/suggested-rules",
        Form({"measure": "MRR", "below": "0.5"}),
    ),
    ("POST", "/checks/{slug}/baseline"): (WRITE, "/checks/docs/baseline", Form({"answer": "accept"})),
    ("POST", "/checks/{slug}/habits"): (WRITE, "/checks/docs/habits", Form({"habit": HABIT})),
    ("GET", "/checks/{slug}/canaries/{key}"): (READ, "/checks/docs/canaries/oauth", None),
    ("POST", "/checks/{slug}/canaries/{key}/diagnosis"): (WRITE, "/checks/lost/canaries/oauth/diagnosis", None),
    ("POST", "/checks/{slug}/canaries/{key}/try"): (WRITE, "/checks/docs/canaries/oauth/try", None),
    ("GET", "/checks/{slug}/reanchors"): (READ, "/checks/docs/reanchors", None),
    ("POST", "/checks/{slug}/reanchors"): (WRITE, "/checks/docs/reanchors", Form({"answer": "accept"})),
    ("GET", "/v1/suites"): (READ, "/v1/suites", None),
    ("GET", "/v1/suites/{suite}"): (READ, "/v1/suites/docs", None),
    ("GET", "/v1/suites/{suite}/composition"): (READ, "/v1/suites/docs/composition", None),
    ("PUT", "/v1/suites/{suite}"): (WRITE, "/v1/suites/spare", {}),
    ("DELETE", "/v1/suites/{suite}"): (WRITE, "/v1/suites/spare", None),
    ("GET", "/v1/suites/{suite}/canaries"): (READ, "/v1/suites/docs/canaries", None),
    ("POST", "/v1/suites/{suite}/canaries"): (WRITE, "/v1/suites/docs/canaries", CANARIES),
    ("GET", "/v1/suites/{suite}/canaries/{key}"): (READ, "/v1/suites/docs/canaries/oauth", None),
    ("PUT", "/v1/suites/{suite}/canaries/{key}"): (WRITE, "/v1/suites/docs/canaries/spare", {"query": "?"}),
    ("DELETE", "/v1/suites/{suite}/canaries/{key}"): (WRITE, "/v1/suites/docs/canaries/spare", None),
    ("GET", "/v1/retrievers"): (READ, "/v1/retrievers", None),
    ("GET", "/v1/retrievers/{slug}"): (READ, "/v1/retrievers/search", None),
    ("PUT", "/v1/retrievers/{slug}"): (ADMIN, "/v1/retrievers/spare", RETRIEVER),
    ("DELETE", "/v1/retrievers/{slug}"): (ADMIN, "/v1/retrievers/spare", None),
    ("GET", "/v1/retrievers/{slug}/embedding"): (READ, "/v1/retrievers/search/embedding", None),
    ("DELETE", "/v1/retrievers/{slug}/embedding"): (WRITE, "/v1/retrievers/search/embedding", None),
    ("POST", "/v1/retrievers/{slug}/try"): (WRITE, "/v1/retrievers/search/try", {"query": "?"}),
    ("GET", "/retrievers"): (READ, "/retrievers", None),
    ("GET", "/retrievers/{slug}/try"): (READ, "/retrievers/search/try", None),
    ("POST", "/retrievers/{slug}/try"): (WRITE, "/retrievers/search/try", Form({"query": "?", "k": "5"})),
    ("GET", "/new-retriever"): (READ, "/new-retriever", None),
    ("POST", "/new-retriever"): (ADMIN, "/new-retriever", Form({"do": "read", "answer": "[]"})),
    ("GET", "/retrievers/{slug}"): (READ, "/retrievers/search", None),
    ("GET", "/retrievers/{slug}/map"): (READ, "/retrievers/search/map", None),
    ("POST", "/retrievers/{slug}/map"): (WRITE, "/retrievers/search/map", Form({"do": "read", "answer": "[]"})),
    ("POST", "/retrievers/{slug}/archive"): (ADMIN, "/retrievers/spare/archive", None),
    ("GET", "/suites"): (READ, "/suites", None),
    ("POST", "/suites"): (WRITE, "/suites", Form({"slug": "made-on-a-page"})),
    ("GET", "/suites/{suite}"): (READ, "/suites/docs", None),
    ("POST", "/suites/{suite}/archive"): (WRITE, "/suites/spare/archive", None),
    ("GET", "/suites/{suite}/traffic"): (READ, "/suites/docs/traffic", None),
    ("POST", "/suites/{suite}/reach"): (WRITE, "/suites/docs/reach", Form({"retriever": "search"})),
    ("POST", "/suites/{suite}/suggestions"): (
        WRITE,
        "/suites/docs/suggestions",
        Form({"retriever": "search", "task": "gaps", "queries": "Who pays for support?"}),
    ),
    ("POST", "/suites/{suite}/traffic/delete"): (WRITE, "/suites/docs/traffic/delete", Form({"query": "never asked"})),
    ("GET", "/suites/{suite}/export"): (READ, "/suites/docs/export", None),
    ("GET", "/suites/{suite}/edit"): (READ, "/suites/docs/edit", None),
    ("GET", "/suites/{suite}/add"): (READ, "/suites/docs/add", None),
    ("POST", "/suites/{suite}/add"): (WRITE, "/suites/docs/add", Form({"query": "?", "do": "keep"})),
    ("GET", "/suites/{suite}/canaries/{key}"): (READ, "/suites/docs/canaries/oauth", None),
    ("POST", "/suites/{suite}/canaries/{key}"): (WRITE, "/suites/docs/canaries/oauth", Form({"do": "keep"})),
    ("POST", "/suites/{suite}/canaries/{key}/archive"): (WRITE, "/suites/docs/canaries/spare/archive", None),
    ("GET", "/import"): (READ, "/import", None),
    ("POST", "/import"): (ADMIN, "/import", Form({"format": "coalmine", "pasted": "suite: pasted", "do": "plan"})),
    ("GET", "/new-check"): (READ, "/new-check", None),
    ("POST", "/new-check"): (
        WRITE,
        "/new-check",
        Form({"slug": "made-on-a-page", "suite": "docs", "retriever": "search", "schedule.every": "1h", "k": "3"}),
    ),
    ("GET", "/public/{token}"): (None, "/public/spare", None),
    ("GET", "/public/{token}.svg"): (None, "/public/spare.svg", None),
    ("POST", "/checks/{slug}/public-link"): (ADMIN, "/checks/docs/public-link", None),
    ("POST", "/checks/{slug}/public-link/revoke"): (ADMIN, "/checks/docs/public-link/revoke", None),
    ("GET", "/cron-words"): (READ, "/cron-words?cron=0+2+*+*+*", None),
    ("GET", "/checks/{slug}/edit"): (READ, "/checks/docs/edit", None),
    ("POST", "/checks/{slug}/edit"): (
        WRITE,
        "/checks/spare/edit",
        Form({"suite": "docs", "retriever": "search", "schedule.every": "1h", "k": "3"}),
    ),
    ("POST", "/checks/{slug}/archive"): (WRITE, "/checks/spare/archive", None),
    ("GET", "/v1/checks"): (READ, "/v1/checks", None),
    ("GET", "/v1/checks/{slug}"): (READ, "/v1/checks/docs", None),
    ("GET", "/v1/checks/{slug}/quality"): (READ, "/v1/checks/docs/quality", None),
    ("GET", "/v1/checks/{slug}/suggested-rules"): (READ, "/v1/checks/docs/suggested-rules", None),
    ("GET", "/v1/checks/{slug}/baseline"): (READ, "/v1/checks/docs/baseline", None),
    ("GET", "/v1/checks/{slug}/public-link"): (READ, "/v1/checks/docs/public-link", None),
    ("POST", "/v1/checks/{slug}/public-link"): (ADMIN, "/v1/checks/docs/public-link", None),
    ("DELETE", "/v1/checks/{slug}/public-link"): (ADMIN, "/v1/checks/docs/public-link", None),
    ("PUT", "/v1/checks/{slug}/baseline"): (WRITE, "/v1/checks/docs/baseline", {"accept": True}),
    ("DELETE", "/v1/checks/{slug}/baseline"): (WRITE, "/v1/checks/docs/baseline", None),
    ("POST", "/v1/checks/{slug}/habits/{habit}/not-normal"): (
        WRITE,
        f"/v1/checks/docs/habits/{HABIT}/not-normal",
        {"note": "a stale replica"},
    ),
    ("PUT", "/v1/checks/{slug}"): (WRITE, "/v1/checks/spare", CHECK),
    ("DELETE", "/v1/checks/{slug}"): (WRITE, "/v1/checks/spare", None),
    ("GET", "/v1/judges"): (READ, "/v1/judges", None),
    ("GET", "/v1/judges/{slug}"): (READ, "/v1/judges/spare", None),
    ("PUT", "/v1/judges/{slug}"): (ADMIN, "/v1/judges/spare", JUDGE),
    ("DELETE", "/v1/judges/{slug}"): (ADMIN, "/v1/judges/spare", None),
    ("GET", "/v1/judges/{slug}/report"): (READ, "/v1/judges/spare/report", None),
    ("GET", "/judges"): (READ, "/judges", None),
    ("GET", "/judges/{slug}/edit"): (READ, "/judges/spare/edit", None),
    ("GET", "/judges/{slug}"): (READ, "/judges/spare", None),
    ("POST", "/judges/{slug}/tasks"): (
        WRITE,
        "/judges/spare/tasks",
        Form(
            {
                "slug": "drawn-on-a-page",
                "suite": "docs",
                "question": "faithful",
                "count": "100",
                "window_hours": "24",
                "overlap": "0",
            }
        ),
    ),
    ("GET", "/v1/runs/{run_id}/answers"): (READ, "/v1/runs/1/answers", None),
    ("GET", "/runs/{run_id}/answers"): (READ, "/runs/1/answers", None),
    ("POST", "/v1/checks/{slug}/feedback"): (
        WRITE,
        "/v1/checks/docs/feedback",
        {"events": [{"event_id": "1", "canary": "oauth", "answer": "No.", "kind": "thumbs", "positive": False}]},
    ),
    ("GET", "/v1/checks/{slug}/feedback"): (READ, "/v1/checks/docs/feedback", None),
    ("DELETE", "/v1/checks/{slug}/feedback"): (WRITE, "/v1/checks/docs/feedback", None),
    ("GET", "/v1/hooks"): (READ, "/v1/hooks", None),
    ("GET", "/v1/hooks/{slug}"): (READ, "/v1/hooks/ops", None),
    ("PUT", "/v1/hooks/{slug}"): (ADMIN, "/v1/hooks/spare", HOOK),
    ("DELETE", "/v1/hooks/{slug}"): (ADMIN, "/v1/hooks/spare", None),
    ("POST", "/v1/hooks/{slug}/test"): (ADMIN, "/v1/hooks/ops/test", None),
    ("POST", "/v1/import"): (ADMIN, "/v1/import", []),
    ("GET", "/v1/export"): (READ, "/v1/export", None),
    ("POST", "/v1/checks/{slug}/runs"): (WRITE, "/v1/checks/docs/runs", {}),
    ("GET", "/v1/checks/{slug}/health"): (READ, "/v1/checks/docs/health", None),
    ("GET", "/v1/checks/{slug}/runs"): (READ, "/v1/checks/docs/runs", None),
    ("GET", "/v1/runs/{run_id}"): (READ, "/v1/runs/1", None),
    ("GET", "/v1/events"): (READ, "/v1/events?seconds=0.1", None),
    ("GET", "/v1/runs/{run_id}/events"): (READ, "/v1/runs/1/events", None),
    ("GET", "/v1/tasks/{slug}/events"): (READ, "/v1/tasks/truth/events?seconds=0.1", None),
    ("GET", "/v1/rescorings/{rescoring_id}/events"): (READ, "/v1/rescorings/1/events?seconds=0.1", None),
    ("GET", "/v1/runs/{run_id}/results"): (READ, "/v1/runs/1/results", None),
    ("PUT", "/v1/runs/{run_id}/note"): (WRITE, "/v1/runs/1/note", {"text": "index rebuilt"}),
    ("DELETE", "/v1/runs/{run_id}/note"): (WRITE, "/v1/runs/1/note", None),
    ("GET", "/v1/compare"): (READ, "/v1/compare?a=run:1&b=run:1", None),
    ("GET", "/v1/runs/{before}/diff/{now}"): (READ, "/v1/runs/1/diff/1", None),
    ("GET", "/v1/runs/{run_id}/report"): (READ, "/v1/runs/1/report", None),
    ("GET", "/v1/checks/{slug}/series"): (READ, "/v1/checks/docs/series", None),
    ("GET", "/v1/checks/{slug}/heatmap"): (READ, "/v1/checks/docs/heatmap", None),
    ("GET", "/heatmap/{slug}.png"): (READ, "/heatmap/docs.png", None),
    ("GET", "/v1/checks/{slug}/latency-series"): (READ, "/v1/checks/docs/latency-series", None),
    ("GET", "/v1/checks/{slug}/evidence-series"): (READ, "/v1/checks/docs/evidence-series", None),
    ("POST", "/checks/{slug}/rescorings"): (WRITE, "/checks/docs/rescorings", Form({"since": "7d"})),
    ("GET", "/rescorings/{rescoring_id}"): (READ, "/rescorings/1", None),
    ("POST", "/rescorings/{rescoring_id}/retry"): (WRITE, "/rescorings/1/retry", None),
    ("POST", "/v1/checks/{slug}/rescorings"): (WRITE, "/v1/checks/docs/rescorings", {}),
    ("GET", "/v1/checks/{slug}/rescorings"): (READ, "/v1/checks/docs/rescorings", None),
    ("GET", "/v1/rescorings/{rescoring_id}"): (READ, "/v1/rescorings/1", None),
    ("GET", "/v1/checks/{slug}/canaries/{key}/history"): (READ, "/v1/checks/docs/canaries/oauth/history", None),
    ("GET", "/v1/checks/{slug}/canaries/{key}/diagnosis"): (READ, "/v1/checks/docs/canaries/oauth/diagnosis", None),
    ("POST", "/v1/checks/{slug}/canaries/{key}/diagnosis"): (WRITE, "/v1/checks/lost/canaries/oauth/diagnosis", None),
    ("GET", "/v1/checks/{slug}/reanchors"): (READ, "/v1/checks/docs/reanchors", None),
    ("POST", "/v1/checks/{slug}/reanchors"): (WRITE, "/v1/checks/docs/reanchors", {"accept": "all"}),
    ("GET", "/v1/alerts"): (READ, "/v1/alerts", None),
    ("GET", "/v1/alerts/{alert_id}"): (READ, "/v1/alerts/1", None),
    ("GET", "/v1/deliveries"): (READ, "/v1/deliveries", None),
    ("GET", "/v1/deliveries/{delivery_id}"): (READ, "/v1/deliveries/1", None),
    ("POST", "/v1/alerts/{alert_id}/acknowledge"): (WRITE, "/v1/alerts/1/acknowledge", None),
    ("GET", "/v1/checks/{slug}/alerting"): (READ, "/v1/checks/docs/alerting", None),
    ("POST", "/v1/hooks/{slug}/replay"): (WRITE, "/v1/hooks/ops/replay", None),
    ("GET", "/v1/silences"): (READ, "/v1/silences", None),
    ("GET", "/v1/silences/{slug}"): (READ, "/v1/silences/spare", None),
    ("PUT", "/v1/silences/{slug}"): (WRITE, "/v1/silences/spare", SILENCE),
    ("DELETE", "/v1/silences/{slug}"): (WRITE, "/v1/silences/spare", None),
    ("POST", "/v1/deliveries/{delivery_id}/replay"): (WRITE, "/v1/deliveries/1/replay", None),
    ("GET", "/tasks"): (READ, "/tasks", None),
    ("POST", "/tasks"): (
        WRITE,
        "/tasks",
        Form(
            {
                "slug": "made-on-a-page",
                "suite": "docs",
                "retrievers": "search",
                "pool": "5",
                "scale": "0-2",
                "overlap": "0",
            }
        ),
    ),
    ("GET", "/tasks/{slug}"): (READ, "/tasks/truth", None),
    ("POST", "/tasks/{slug}/pool"): (WRITE, "/tasks/truth/pool", None),
    ("POST", "/tasks/{slug}/adjudicate"): (WRITE, "/tasks/truth/adjudicate", Form({"item": ITEM, "grade": "1"})),
    ("POST", "/tasks/{slug}/adopt"): (WRITE, "/tasks/truth/adopt", None),
    ("POST", "/tasks/{slug}/regrade"): (WRITE, "/tasks/truth/regrade", None),
    ("POST", "/tasks/{slug}/archive"): (WRITE, "/tasks/spare/archive", None),
    ("GET", "/tasks/{slug}/annotations.csv"): (READ, "/tasks/truth/annotations.csv", None),
    ("GET", "/annotate"): (ANNOTATE, "/annotate", None),
    ("GET", "/tasks/{slug}/annotate"): (ANNOTATE, "/tasks/truth/annotate", None),
    ("POST", "/tasks/{slug}/annotate"): (ANNOTATE, "/tasks/truth/annotate", Form({"item": ITEM, "answer": "1"})),
    ("GET", "/v1/tasks"): (READ, "/v1/tasks", None),
    ("GET", "/v1/tasks/{slug}"): (READ, "/v1/tasks/truth", None),
    ("PUT", "/v1/tasks/{slug}"): (WRITE, "/v1/tasks/spare", TASK),
    ("DELETE", "/v1/tasks/{slug}"): (WRITE, "/v1/tasks/spare", None),
    ("POST", "/v1/tasks/{slug}/pool"): (WRITE, "/v1/tasks/truth/pool", None),
    ("GET", "/v1/tasks/{slug}/next"): (ANNOTATE, "/v1/tasks/truth/next", None),
    ("GET", "/v1/tasks/{slug}/items/{item}"): (ANNOTATE, f"/v1/tasks/truth/items/{ITEM}", None),
    ("PUT", "/v1/tasks/{slug}/items/{item}/annotation"): (
        ANNOTATE,
        f"/v1/tasks/truth/items/{ITEM}/annotation",
        {"grade": 1},
    ),
    ("POST", "/v1/tasks/{slug}/undo"): (ANNOTATE, "/v1/tasks/truth/undo", {}),
    ("GET", "/v1/tasks/{slug}/agreement"): (READ, "/v1/tasks/truth/agreement", None),
    ("GET", "/v1/tasks/{slug}/recall"): (READ, "/v1/tasks/truth/recall", None),
    ("GET", "/v1/tasks/{slug}/budget"): (READ, "/v1/tasks/truth/budget", None),
    ("GET", "/v1/tasks/{slug}/disagreements"): (READ, "/v1/tasks/truth/disagreements", None),
    ("PUT", "/v1/tasks/{slug}/items/{item}/adjudication"): (
        WRITE,
        f"/v1/tasks/truth/items/{ITEM}/adjudication",
        {"grade": 1},
    ),
    ("POST", "/v1/tasks/{slug}/adopt"): (WRITE, "/v1/tasks/truth/adopt", None),
    ("POST", "/v1/tasks/{slug}/regrade"): (WRITE, "/v1/tasks/truth/regrade", None),
    ("GET", "/v1/tasks/{slug}/annotations"): (READ, "/v1/tasks/truth/annotations", None),
    ("POST", "/v1/tasks/{slug}/annotations"): (
        WRITE,
        "/v1/tasks/truth/annotations",
        {"files": {"a.csv": "canary,chunk_id,annotator,grade\noauth,c1,Ann,1\n"}},
    ),
    ("GET", "/v1/suites/{suite}/traffic"): (READ, "/v1/suites/docs/traffic", None),
    ("POST", "/v1/suites/{suite}/traffic"): (INGEST, "/v1/suites/docs/traffic?retriever=search", TRAFFIC),
    ("POST", "/v1/otlp/{suite}/v1/traces"): (INGEST, "/v1/otlp/docs/v1/traces?retriever=search", SPANS),
    ("DELETE", "/v1/suites/{suite}/traffic"): (WRITE, "/v1/suites/docs/traffic", {"query": "never asked"}),
    ("POST", "/v1/suites/{suite}/reach"): (WRITE, "/v1/suites/docs/reach", {"retriever": "search"}),
    ("GET", "/v1/suites/{suite}/reach"): (READ, "/v1/suites/docs/reach?retriever=search", None),
    ("GET", "/v1/suites/{suite}/suggestions"): (WRITE, "/v1/suites/docs/suggestions?retriever=search", None),
    ("POST", "/v1/suites/{suite}/suggestions"): (WRITE, "/v1/suites/docs/suggestions", SUGGESTIONS),
    ("GET", "/v1/corpora"): (READ, "/v1/corpora", None),
    ("GET", "/v1/corpora/{corpus}"): (READ, "/v1/corpora/spare", None),
    ("POST", "/v1/corpora/{corpus}"): (WRITE, "/v1/corpora/spare", CORPUS),
    ("DELETE", "/v1/corpora/{corpus}"): (WRITE, "/v1/corpora/spare", None),
    ("GET", "/experiments"): (READ, "/experiments", None),
    ("POST", "/experiments"): (
        WRITE,
        "/experiments",
        Form(
            {
                "kind": "shadow",
                "shadow.slug": "spare-new",
                "shadow.candidate": "search",
                "shadow.share": "0.1",
                "shadow.k": "5",
                "shadow.keep": "7",
            }
        ),
    ),
    ("GET", "/experiments/{slug}"): (READ, "/experiments/spare", None),
    ("GET", "/promotions/{slug}"): (READ, "/promotions/spare", None),
    ("POST", "/experiments/{slug}/stop"): (WRITE, "/experiments/spare/stop", None),
    ("POST", "/experiments/{slug}/restart"): (WRITE, "/experiments/spare/restart", None),
    ("POST", "/experiments/{slug}/archive"): (WRITE, "/experiments/spare/archive", None),
    ("GET", "/interleavings/{slug}"): (READ, "/interleavings/spare", None),
    ("POST", "/interleavings/{slug}/delete"): (WRITE, "/interleavings/spare/delete", None),
    ("POST", "/promotions/{slug}/delete"): (WRITE, "/promotions/spare/delete", None),
    ("POST", "/promotions/{slug}/experiment"): (WRITE, "/promotions/spare/experiment", Form({"experiment": ""})),
    ("POST", "/promotions/{slug}/waive"): (
        WRITE,
        "/promotions/spare/waive",
        Form({"gate": "judge", "reason": "no budget for a judge"}),
    ),
    ("GET", "/v1/experiments"): (READ, "/v1/experiments", None),
    ("GET", "/v1/experiments/{slug}"): (READ, "/v1/experiments/spare", None),
    ("PUT", "/v1/experiments/{slug}"): (WRITE, "/v1/experiments/spare", EXPERIMENT),
    ("DELETE", "/v1/experiments/{slug}"): (WRITE, "/v1/experiments/spare", None),
    ("POST", "/v1/experiments/{slug}/stop"): (WRITE, "/v1/experiments/spare/stop", None),
    ("POST", "/v1/experiments/{slug}/exposures"): (WRITE, "/v1/experiments/spare/exposures", [{"unit": "user-1"}]),
    ("POST", "/v1/experiments/{slug}/outcomes"): (
        WRITE,
        "/v1/experiments/spare/outcomes",
        [{"event_id": "click-1", "unit": "user-1", "value": 1}],
    ),
    ("GET", "/v1/interleavings"): (READ, "/v1/interleavings", None),
    ("GET", "/v1/interleavings/{slug}"): (READ, "/v1/interleavings/spare", None),
    ("PUT", "/v1/interleavings/{slug}"): (WRITE, "/v1/interleavings/spare", {"a": "old", "b": "new"}),
    ("DELETE", "/v1/interleavings/{slug}"): (WRITE, "/v1/interleavings/spare", None),
    ("POST", "/v1/interleavings/{slug}/lists"): (
        WRITE,
        "/v1/interleavings/spare/lists",
        {"unit": "user-1", "a": ["c1"], "b": ["c2"]},
    ),
    ("POST", "/v1/interleavings/{slug}/clicks"): (
        WRITE,
        "/v1/interleavings/spare/clicks",
        [{"event_id": "click-1", "unit": "user-1", "team": "a"}],
    ),
    ("GET", "/v1/shadows"): (READ, "/v1/shadows", None),
    ("GET", "/v1/shadows/{slug}"): (READ, "/v1/shadows/spare", None),
    ("PUT", "/v1/shadows/{slug}"): (WRITE, "/v1/shadows/spare", {"candidate": "search"}),
    ("GET", "/shadows/{slug}"): (READ, "/shadows/spare", None),
    ("POST", "/shadows/{slug}"): (
        WRITE,
        "/shadows/spare",
        Form({"candidate": "search", "share": "0.1", "k": "5", "keep": "7"}),
    ),
    ("POST", "/shadows/{slug}/tasks"): (
        WRITE,
        "/shadows/spare/tasks",
        Form({"task": "spare-pairs", "suite": "docs", "count": "5", "overlap": "0"}),
    ),
    ("POST", "/shadows/{slug}/delete"): (WRITE, "/shadows/spare/delete", None),
    ("GET", "/v1/shadows/{slug}/pairs"): (WRITE, "/v1/shadows/spare/pairs", None),
    ("POST", "/v1/shadows/{slug}/pairs"): (WRITE, "/v1/shadows/spare/pairs", PAIRS),
    ("DELETE", "/v1/shadows/{slug}"): (WRITE, "/v1/shadows/spare", None),
    ("GET", "/v1/promotions"): (READ, "/v1/promotions", None),
    ("GET", "/v1/promotions/{slug}"): (READ, "/v1/promotions/spare", None),
    ("PUT", "/v1/promotions/{slug}"): (WRITE, "/v1/promotions/spare", PROMOTION),
    ("DELETE", "/v1/promotions/{slug}"): (WRITE, "/v1/promotions/spare", None),
    ("PUT", "/v1/promotions/{slug}/waivers/{gate}"): (
        WRITE,
        "/v1/promotions/spare/waivers/judge",
        {"reason": "no budget for a judge"},
    ),
    ("DELETE", "/v1/promotions/{slug}/waivers/{gate}"): (WRITE, "/v1/promotions/spare/waivers/offline", None),
}
OF_ANY_SCOPE = {("POST", "/logout"), ("GET", "/help"), ("GET", "/help/{name:path}")}
"""Take a key of any scope."""
GUARDED = [route for route, (scope, _, _) in ROUTES.items() if scope is not None]
MOUNTS = {"/static"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service that has one of everything, and keys."""
    with api(tmp_path_factory.mktemp("auth"), secret_key=SECRET_KEY, metrics_token=METRICS_TOKEN) as opened:
        state = app_of(opened).state
        state.access = replace(state.access, unknown_keys=Attempts(most=1_000_000))  # see `test_request_limits`
        opened.docs()
        opened.client.post("/v1/checks/docs/rescorings")
        gone = Receipt(ok=False, http_status=410, error="refused", untaken=True, gone=True)
        opened.put("/v1/hooks/departed", HOOK)
        for _ in range(2):
            opened.mailbox.receipts.append(gone)
            opened.client.post("/v1/hooks/departed/test")
            opened.deliver()
            opened.put("/v1/hooks/departed", HOOK)  # enables it again; its delivery stays dead
        opened.retriever.found = {canary["query"]: [] for canary in CANARIES}
        for _ in range(2):
            opened.run()
        opened.put("/v1/suites/lost", {"canaries": CANARIES})  # nothing changes it, so what was lost can be diagnosed
        opened.put("/v1/checks/lost", {**CHECK, "suite": "lost"})
        opened.run("lost")
        opened.put("/v1/checks/docs-again", CHECK)
        for slug in ("planted", "planted-too"):
            opened.put(f"/v1/checks/{slug}", {**CHECK, "plant": PLANT})
        opened.retriever.found = {}
        opened.client.post("/v1/checks/docs/canaries/oauth/diagnosis")
        TOKENS.append(opened.pooled_task())
        opened.reached()
        for scope in Scope:
            KEYS[scope] = opened.key(scope)
        opened.client.event_hooks["response"].append(_note_change)
        CHANGED.update(SPARE)
        yield opened


def _note_change(answer: httpx2.Response) -> None:
    if answer.request.method != "GET" and not answer.is_error:
        CHANGED.add(answer.url.path.replace("/suggestions", "/tasks/gaps"))  # that is what they open


CHANGED: set[str] = set()
"""Paths of what was changed since `_spare`; most requests here are refused, and change nothing."""
KEYS: dict[Scope, str] = {}
TOKENS: list[str] = []
"""The item that `ITEM` stands for."""


def _request(service: Api, route: tuple[str, str], headers: dict[str, str]) -> Any:
    method, _ = route
    _, address, body = ROUTES[route]
    address = address.replace(ITEM, TOKENS[-1])
    if "/keys/spare/" in address:
        service.key(READ)
        address = address.replace("spare", keys.list_keys(service.service.store)[-1].prefix)
    service.client.cookies.clear()
    sent: dict[str, Any] = {"json": body}
    if isinstance(body, Form):
        sent = {"data": {name: TOKENS[-1] if text == ITEM else text for name, text in body.fields.items()}}
    if isinstance(body, Form) and address.endswith(("/edit", "/suggested-rules")):
        _, kinds, slug, _ = address.split("/")
        opened_with = references.load_definition(service.service.store, kinds.removesuffix("s"), slug).revision
        sent = {"data": {**body.fields, "revision": str(opened_with)}}
    return service.client.request(method, address, **sent, headers=headers, follow_redirects=False)


def _spare(service: Api) -> None:
    """Let what routes use up be there, and what they make be gone, where something of its kind was changed."""
    for kind, make in SPARE.items():
        if any(kind in path for path in CHANGED):
            make(service)
    CHANGED.clear()


def _put(service: Api, path: str, body: Any, scope: Scope = ADMIN) -> None:
    assert service.client.put(path, json=body, headers=bearer(KEYS[scope])).is_success


def _post(service: Api, path: str, body: Any) -> None:
    assert service.client.post(path, json=body, headers=bearer(KEYS[ADMIN])).is_success


def _delete(service: Api, path: str) -> None:
    assert service.client.delete(path, headers=bearer(KEYS[ADMIN])).status_code in {204, 404}


def _spare_suites(service: Api) -> None:
    _delete(service, "/v1/suites/made-on-a-page")
    _put(service, "/v1/suites/spare", {})
    _put(service, "/v1/suites/docs/canaries/spare", {"query": "?"})


def _spare_hooks(service: Api) -> None:
    _delete(service, "/v1/hooks/newly")
    _put(service, "/v1/hooks/spare", HOOK)


def _spare_checks(service: Api) -> None:
    _delete(service, "/v1/checks/made-on-a-page")
    _put(service, "/v1/checks/spare", CHECK)
    with app_of(service).state.access.store.write() as connection:
        docs = present(catalog.find_definition(connection, "check", "docs"))
        save_public_link(connection, docs.id, digest_of("spare"), by="nobody", now=0)


def _spare_silences(service: Api) -> None:
    _delete(service, "/v1/silences/newly")
    _put(service, "/v1/silences/spare", SILENCE)


def _spare_tasks(service: Api) -> None:
    for slug in ("made-on-a-page", "drawn-on-a-page", "gaps", "spare-pairs"):
        _delete(service, f"/v1/tasks/{slug}")
    _put(service, "/v1/tasks/spare", TASK)
    for scope in (ANNOTATE, ADMIN):
        _put(service, f"/v1/tasks/truth/items/{TOKENS[-1]}/annotation", {"grade": 1}, scope)


def _spare_experiments(service: Api) -> None:
    _put(service, "/v1/experiments/spare", EXPERIMENT)
    _delete(service, "/v1/shadows/spare-new")  # made on the page of experiments


def _spare_shadows(service: Api) -> None:
    _delete(service, "/v1/shadows/spare")
    _put(service, "/v1/shadows/spare", {"candidate": "search"})
    _post(service, "/v1/shadows/spare/pairs", PAIRS)


def _spare_promotions(service: Api) -> None:
    _put(service, "/v1/promotions/spare", PROMOTION)
    _put(service, "/v1/promotions/spare/waivers/offline", {"reason": "a new language of users"})


SPARE: dict[str, Callable[[Api], None]] = {
    "suite": _spare_suites,
    "retriever": lambda service: _put(service, "/v1/retrievers/spare", RETRIEVER),
    "hook": _spare_hooks,
    "judge": lambda service: _put(service, "/v1/judges/spare", JUDGE),
    "check": _spare_checks,
    "silence": _spare_silences,
    "task": _spare_tasks,
    "experiment": _spare_experiments,
    "promotion": _spare_promotions,
    "baseline": lambda service: remember_habit(service.service.store, "docs"),
    "corpora": lambda service: _post(service, "/v1/corpora/spare", CORPUS),
    "shadow": _spare_shadows,
    "interleaving": lambda service: _put(service, "/v1/interleavings/spare", {"a": "old", "b": "new"}),
}
"""What makes the spare things of a kind, by a word that the paths of the kind have."""


def _routes_of(app: FastAPI) -> tuple[set[tuple[str, str]], set[str]]:
    """Give (method, path) of every route, and the paths of what has no methods: mounts and web sockets."""
    found: set[tuple[str, str]] = set()
    others: set[str] = set()
    for route in iter_route_contexts(app.routes):
        if route.methods is None:
            others.add(str(route.path))
        else:
            found |= {(method, str(route.path)) for method in route.methods - {"HEAD"}}
    return found, others


def test_every_route_has_a_stated_scope(service: Api) -> None:
    found, others = _routes_of(app_of(service))
    assert found == set(ROUTES)
    assert others == MOUNTS
    assert {path for (_, path), (scope, _, _) in ROUTES.items() if scope is None} == {*EXEMPT, *PUBLIC}


def test_a_route_without_a_stated_scope_is_noticed_wherever_it_is_added() -> None:
    app, inner = FastAPI(openapi_url=None, docs_url=None, redoc_url=None), APIRouter()
    inner.add_api_route("/deep", lambda: None, methods=["PATCH"])
    outer = APIRouter(prefix="/v1")
    outer.include_router(inner, prefix="/more")
    app.include_router(outer)
    app.mount("/mounted", FastAPI())
    app.add_api_websocket_route("/socket", lambda: None)
    assert _routes_of(app) == ({("PATCH", "/v1/more/deep")}, {"/mounted", "/socket"})


def test_a_service_has_no_route_that_asks_nobody_who_they_are() -> None:
    router = APIRouter()
    router.add_api_route("/open", lambda: None)
    with pytest.raises(TypeError, match="asks nobody"):
        guarded(router)


def test_a_route_is_prepared_when_it_is_first_asked_for_and_once() -> None:
    router = api_router("history")

    @router.get("/things/{thing}")
    def get_thing(thing: int) -> dict[str, int]:
        return {"thing": thing}

    (route,) = router.routes
    assert isinstance(route, Route)
    assert "dependant" not in route.__dict__
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: route.dependant, range(8)))
    assert [one.name for one in found[0].path_params] == ["thing"]
    assert all(one is found[0] for one in found)
    assert route.unique_id == "get_thing"
    with pytest.raises(AttributeError, match="nothing"):
        _ = route.nothing


def test_no_other_method_opens_a_route(service: Api) -> None:
    opened = {}
    for path in ("/livez", "/login", "/metrics", "/alerts", "/v1/checks", "/v1/suites/{suite}", "/alerts/{alert_id}"):
        declared = {method for method, declared in ROUTES if declared == path}
        address = next(address for (_, declared), (_, address, _) in ROUTES.items() if declared == path)
        odd = {"OPTIONS", "PATCH", "TRACE", "CONNECT", "PROPFIND"}
        for method in {*odd, "GET", "POST", "PUT", "DELETE"} - declared:
            service.client.cookies.clear()
            answer = service.client.request(method, address, headers=bearer(KEYS[ADMIN]), follow_redirects=False)
            if answer.status_code not in {404, 405}:
                opened[method, path] = answer.status_code
    assert opened == {}


@pytest.mark.parametrize(
    "route", [("GET", "/v1/checks"), ("GET", "/metrics"), ("GET", "/"), ("PUT", "/v1/suites/{suite}")]
)
def test_what_is_no_key_opens_nothing(service: Api, route: tuple[str, str]) -> None:
    read = KEYS[READ]
    wrong = [
        bearer("cmk_read_" + "A" * 43),
        bearer(read[:-1]),
        bearer(read + "A"),
        bearer(read.upper()),
        bearer(SECRET_KEY),
        {"authorization": f"Basic {read}"},
        {"authorization": read},
        {"authorization": "Bearer"},
        {"authorization": "Bearer " + "x" * 10_000},
        {"x-api-key": KEYS[ADMIN]},
    ]
    if route != ("GET", "/metrics"):
        wrong.append(bearer(METRICS_TOKEN))
    for headers in wrong:
        answer = _request(service, route, headers)
        assert _is_unauthorized(answer), headers
        assert read not in answer.text


def _is_unauthorized(answer: httpx2.Response) -> bool:
    return (
        answer.status_code == 401
        and answer.headers["content-type"] == "application/problem+json"
        and answer.headers["www-authenticate"] == 'Bearer realm="coalmine"'
        and answer.json()["type"] == "/problems/unauthorized"
    )


@pytest.fixture(scope="module")
def description(service: Api) -> dict[str, Any]:
    """Give the description that the service hands out."""
    described: dict[str, Any] = service.client.get("/openapi.json", headers=bearer(KEYS[ADMIN])).json()
    return described


DESCRIBED = [route for route in ROUTES if route[1].startswith("/v1/") or route[1] in {"/livez", "/readyz", "/metrics"}]


def test_every_route_of_the_api_is_described(description: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, methods in description["paths"].items() for method in methods}
    assert described == set(DESCRIBED)


def test_a_list_of_operations_says_in_words_what_each_does(description: dict[str, Any]) -> None:
    operations = [(one, path, told) for path, methods in description["paths"].items() for one, told in methods.items()]
    said = {(method, path): told["summary"] for method, path, told in operations}
    assert said["put", "/v1/checks/{slug}"].startswith("Create or change a check, together with a suite")
    assert said["delete", "/v1/hooks/{slug}"] == "Archive a hook that no check uses"
    assert said["get", "/livez"] == "Return that the process answers"
    assert not [one for one in said.values() if one.istitle() or one.endswith((".", " ")) or len(one) > 110]


def test_every_response_of_the_description_has_a_content_but_no_content(description: dict[str, Any]) -> None:
    for method, path in DESCRIBED:
        for status, one in description["paths"][path][method.lower()]["responses"].items():
            response = _resolved(description, one)
            assert bool(response.get("content")) is (status != "204"), (method, path, status)
            parts = response.get("content", {}).values()
            assert all(part.keys() & {"schema", "itemSchema"} for part in parts), (method, path, status)


def _resolved(description: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    named = response.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = description["components"]["responses"][named] if named else response
    return found


def test_what_put_makes_new_is_described(service: Api, description: dict[str, Any]) -> None:
    paths = [
        path for method, path in ROUTES if method == "PUT" and not re.search("baseline|/items/|/waivers/|/note$", path)
    ]
    for path in paths:
        _, address, body = ROUTES[("PUT", path)]
        _spare(service)
        key = "/canaries/" in path
        address = "/v1/suites/docs/canaries/quite-new" if key else address.replace("spare", "quite-new")
        answer = service.client.put(address, json=body, headers=bearer(KEYS[ADMIN]))
        assert answer.status_code == 201, answer.text
        assert "application/json" in description["paths"][path]["put"]["responses"]["201"]["content"]


def test_a_route_lets_exactly_its_scope_through_and_answers_as_described(
    service: Api, description: dict[str, Any]
) -> None:
    wrong = {" ".join(route): told for route in ROUTES if (told := list(_told_wrongly(service, description, route)))}
    assert wrong == {}


def _told_wrongly(service: Api, description: dict[str, Any], route: tuple[str, str]) -> Iterator[str]:
    """Ask a route without a key, with one of each scope that does not do and, last, as whoever may."""
    _spare(service)
    headers = bearer(KEYS[ADMIN])
    if route in GUARDED:
        headers = yield from _refused_wrongly(service, route)
    elif route[1] == "/login":
        return  # has tests of its own
    answer = _request(service, route, headers)
    if answer.status_code >= 400 and not _is_replayed(answer, route[1]):
        yield f"who may: {answer.status_code} {answer.text}"
    if route in DESCRIBED:
        operation = description["paths"][route[1]][route[0].lower()]
        told = _resolved(description, operation["responses"][str(answer.status_code)])
        answered = answer.headers.get("content-type", "").partition(";")[0]
        if not (answered in told["content"] if answer.content else "content" not in told):
            yield f"{answer.status_code} {answered} is not described"


def _refused_wrongly(service: Api, route: tuple[str, str]) -> Generator[str, None, dict[str, str]]:
    """Give the headers that do: a key where something is read, a session and its token where something is changed."""
    needed = ROUTES[route][0]
    assert needed is not None
    if not _is_unauthorized(_request(service, route, {})):
        yield "opens without a key"
    for scope in Scope:
        if not scope.includes(needed) and route not in OF_ANY_SCOPE:
            answer = _request(service, route, bearer(KEYS[scope]))
            refused = (answer.status_code, answer.headers["content-type"], answer.json().get("detail"))
            detail = f"this needs a key with scope {needed}; this one has {scope}"
            if refused != (403, "application/problem+json", detail):
                yield f"a key of scope {scope}: {refused}"
    if route[0] == "GET":
        return bearer(KEYS[needed])
    session = _session(service, KEYS[needed])
    cookie = {"cookie": f"{SESSION_COOKIE}={session}"}
    answer = _request(service, route, cookie)
    if answer.status_code != 403 or "CSRF token" not in answer.json()["detail"]:
        yield f"a session without its token: {answer.status_code}"
    return {**cookie, "x-csrf-token": _csrf(service, session)}


def _is_replayed(answer: httpx2.Response, path: str) -> bool:
    """Whether there was nothing to do again: a delivery is dead once, and the one re-scoring has not failed."""
    return answer.status_code == 409 and path.endswith(("/replay", "/retry"))


def test_the_exempt_ask_for_nothing(service: Api) -> None:
    for path in EXEMPT:
        for headers in ({}, bearer("nonsense"), {"host": "evil.example"}):
            assert service.client.get(path, headers=headers).status_code == 200, path


def test_static_files_ask_for_nothing_and_lead_nowhere_else(service: Api) -> None:
    assert service.client.get("/static/site.css").status_code == 200
    for path in ("/static/../pages.py", "/static/%2e%2e/pages.py", "/static/..%2f..%2fmain.py", "/static//etc/passwd"):
        assert service.client.get(path).status_code == 404


def test_no_path_trick_reaches_what_needs_a_key(service: Api) -> None:
    tricks = [
        "//livez", "/livez/", "/livez/../v1/checks", "/livez/..%2fv1/checks", "/livez%2f..%2fv1/checks", "/LIVEZ",
        "/STATIC/../v1/checks", "/static/../v1/checks", "/static/%2e%2e/v1/checks", "/static/..;/v1/checks",
        "/static%2f../v1/checks", "/login/../v1/checks", "/readyz/v1/checks", "/v1/checks/", "//v1/checks",
        "/v1//checks", "/v1/checks;/livez", "/v1/checks%3f/livez", "/v1/./checks", "/V1/checks",
        "/livez\\..\\v1/checks",
        "/metrics/", "/docs/", "/openapi.json/", "/docs/oauth2-redirect", "/redoc",
    ]  # fmt: skip
    assert {path: status for path in tricks if (status := _raw(service, path)) not in {401, 404}} == {}


def _raw(service: Api, path: str) -> int:
    """Ask the app for exactly this path, as a server that tidies nothing would hand it over."""
    statuses: list[int] = []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": unquote(path.partition("?")[0]), "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(b"host", b"127.0.0.1:8000")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
        "state": {},
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    portal = service.client.portal
    assert portal is not None
    portal.call(service.client.app, scope, receive, send)
    return statuses[0]


def test_head_needs_what_get_needs(service: Api) -> None:
    for path in ("/v1/checks", "/metrics", "/openapi.json", "/"):
        assert service.client.head(path).status_code == 401
        assert service.client.head(path, headers=bearer(KEYS[READ])).status_code == 200


def test_the_metrics_token_opens_metrics_alone(service: Api) -> None:
    assert service.client.get("/metrics", headers=bearer(METRICS_TOKEN)).status_code == 200
    assert service.client.get("/metrics", headers=bearer(METRICS_TOKEN + "x")).status_code == 401
    for _, path in GUARDED:
        if path != "/metrics" and "{" not in path:
            assert service.client.get(path, headers=bearer(METRICS_TOKEN)).status_code in {401, 405}


def test_a_revoked_key_is_refused_at_once(service: Api) -> None:
    store = service.service.store
    key = service.key(READ)
    assert service.client.get("/v1/checks", headers=bearer(key)).status_code == 200
    assert service.client.get("/metrics", headers=bearer(key)).status_code == 200
    session = _session(service, key)
    csrf = _csrf(service, session)
    assert _with_cookie(service, session).status_code == 200
    identity = keys.identify(store, key, now=datetime.now(UTC))
    assert identity.key_prefix is not None
    keys.revoke_key(store, identity.key_prefix, now=datetime.now(UTC))
    for path in ("/v1/checks", "/metrics", "/"):
        assert service.client.get(path, headers=bearer(key)).status_code == 401
        assert _with_cookie(service, session, path=path).status_code == 401
    assert service.client.put("/v1/suites/spare", json={}, headers=bearer(key)).status_code == 401
    token = {"x-csrf-token": csrf}
    assert _with_cookie(service, session, "PUT", "/v1/suites/spare", json={}, headers=token).status_code == 401


def test_a_session_that_was_signed_out_of_answers_no_more_though_its_cookie_was_kept(service: Api) -> None:
    session, other = _session(service, KEYS[READ]), _session(service, KEYS[READ])
    before = _ended_sessions(service)
    assert _with_cookie(service, session).status_code == 200
    headers = {"x-csrf-token": _csrf(service, session)}
    left = _with_cookie(service, session, "POST", "/logout", headers=headers, follow_redirects=False)
    assert left.status_code == 303
    for path in ("/v1/checks", "/metrics", "/"):
        assert _with_cookie(service, session, path=path).status_code == 401, path
    assert _with_cookie(service, other).status_code == 200, "another browser stays signed in"
    (row,) = [row for row in _ended_sessions(service) if row not in before]
    assert timedelta(hours=11) < from_us(row.expires_at) - datetime.now(UTC) < timedelta(hours=13)


def test_ended_sessions_are_forgotten_once_their_cookies_have_expired(service: Api) -> None:
    store, now = service.service.store, datetime.now(UTC)
    keys.end_session(store, "of old", expires_at=now - timedelta(hours=1), now=now - timedelta(hours=13))
    assert len(_ended_sessions(service)) >= 1
    keys.end_session(store, "of now", expires_at=now + timedelta(hours=12), now=now)
    assert all(from_us(row.expires_at) > now for row in _ended_sessions(service))


def _ended_sessions(service: Api) -> list[Any]:
    with service.service.store.read() as connection:
        return list(connection.execute(sa.select(ended_sessions)))


def _session(service: Api, key: str) -> str:
    access = service.client.app.state.access  # type: ignore[attr-defined] # it is a FastAPI
    return open_session(access, keys.identify(service.service.store, key, now=datetime.now(UTC)))


def _with_cookie(service: Api, cookie: str, method: str = "GET", path: str = "/v1/checks", **more: Any) -> Any:
    service.client.cookies.clear()
    headers = {"cookie": f"{SESSION_COOKIE}={cookie}", **more.pop("headers", {})}
    return service.client.request(method, path, headers=headers, **more)


def test_a_session_reads_and_writes_only_with_its_token(service: Api) -> None:
    session = _session(service, KEYS[WRITE])
    assert _with_cookie(service, session).status_code == 200

    def put(token: str | None) -> int:
        headers = {} if token is None else {"x-csrf-token": token}
        answer = _with_cookie(service, session, "PUT", "/v1/suites/session", json={}, headers=headers)
        status: int = answer.status_code
        return status

    csrf = _csrf(service, session)
    assert put(None) == 403
    assert put("") == 403
    assert put("x" * len(csrf)) == 403
    assert put("%C3%BC") == 403
    assert put(_csrf(service, _session(service, KEYS[WRITE]))) == 403, "the token of another session"
    assert put(csrf) in {200, 201}
    answer = _with_cookie(service, session, "PUT", "/v1/hooks/h", json=HOOK, headers={"x-csrf-token": csrf})
    assert answer.status_code == 403, "a session has the scope of its key"
    both = {"x-csrf-token": csrf, **bearer("cmk_read_unknown")}
    assert _with_cookie(service, session, headers=both).status_code == 401, "a key that is presented counts"


def _csrf(service: Api, session: str) -> str:
    headers = [(b"cookie", f"{SESSION_COOKIE}={session}".encode())]
    return csrf_token(Request({"type": "http", "app": service.client.app, "headers": headers}))


def test_a_session_that_does_not_hold_is_none(service: Api) -> None:
    good = _session(service, KEYS[READ])
    vault = service.service.vault
    fernet = vault._fernet
    content = fernet.decrypt(good.encode())
    expired = fernet.encrypt_at_time(content, int(time.time()) - 12 * 3600 - 1).decode()
    of_the_future = fernet.encrypt_at_time(content, int(time.time()) + 3600).decode()
    foreign = Fernet(base64.urlsafe_b64encode(b"k" * 32)).encrypt(content).decode()
    other_secret = (vault.encrypt({"secret": HOOK_SECRET}) or b"").decode()
    no_object = fernet.encrypt(b'"text"').decode()
    no_json = fernet.encrypt(b"\xff").decode()
    garbled = good[:-4] + "AAAA"
    for cookie in (
        expired, of_the_future, foreign, other_secret, no_object, no_json, garbled, "x", "%00", '"', good[:20],
        "é", "a" * 5000,
    ):  # fmt: skip
        service.client.cookies.clear()
        answer = service.client.get("/v1/checks", headers=[(b"cookie", f"{SESSION_COOKIE}={cookie}".encode("latin-1"))])
        assert answer.status_code == 401, cookie
    assert _with_cookie(service, good).status_code == 200
    almost = fernet.encrypt_at_time(content, int(time.time()) - 12 * 3600 + 60).decode()
    assert _with_cookie(service, almost).status_code == 200


# --- without keys --------------------------------------------------------------------------------------------


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as service:
        yield service


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give an open service for tests that change nothing of it."""
    with api(tmp_path_factory.mktemp("keyless")) as service:
        yield service


def test_loopback_is_open_while_no_key_was_ever_created(opened: Api) -> None:
    assert opened.client.get("/v1/checks").status_code == 200
    assert opened.client.put("/v1/hooks/ops", json=HOOK).status_code == 201
    opened.key(READ)
    assert opened.client.get("/v1/checks").status_code == 401
    (row,) = keys.list_keys(opened.service.store)
    keys.revoke_key(opened.service.store, row.prefix, now=datetime.now(UTC))
    assert opened.client.get("/v1/checks").status_code == 401, "revoking the last key does not open the door again"


def test_the_open_service_answers_to_loopback_names_only(keyless: Api) -> None:
    own = ("localhost", "localhost:8000", "LOCALHOST:8000", "127.0.0.1", "127.9.9.9:1", "[::1]:8000")
    others = (
        "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1",
        "0.0.0.0:8000", "[::]:8000", "169.254.169.254", "[::1", "", "127.0.0.1@evil.example", "localhost\\@evil",
    )  # fmt: skip
    for status, hosts in ((200, own), (403, others)):
        for host in hosts:
            for path in ("/v1/checks", "/metrics", *(["/", "/openapi.json", "/docs"] if host == hosts[0] else [])):
                assert keyless.client.get(path, headers={"host": host}).status_code == status, (host, path)


def test_the_open_service_answers_nobody_behind_a_proxy(keyless: Api) -> None:
    for name in ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"):
        assert keyless.client.get("/v1/checks", headers={name: "127.0.0.1"}).status_code == 403, name


def test_other_forwarded_headers_change_nothing(opened: Api) -> None:
    forwarded = {
        "x-forwarded-proto": "https",
        "x-original-url": "/livez",
        "x-rewrite-url": "/livez",
        "x-http-method-override": "GET",
    }
    assert opened.client.get("/v1/checks", headers={"host": "evil.example", **forwarded}).status_code == 403
    elsewhere = dict.fromkeys(forwarded, "evil.example")
    assert opened.client.get("/v1/checks", headers=elsewhere).status_code == 200


def test_the_open_service_takes_no_writes_from_other_sites(opened: Api) -> None:
    statuses = {
        "http://localhost:8000": 201,
        "http://localhost:3000": 403,
        "http://127.0.0.1:8000": 403,
        "http://evil.example": 403,
        "https://localhost.evil.example": 403,
        "null": 403,
        "": 403,
    }
    for origin, status in statuses.items():
        headers = {"origin": origin, "host": "localhost:8000"}
        assert opened.client.put("/v1/suites/s", json={}, headers=headers).status_code == status, origin
        answer = opened.client.get("/v1/suites", headers=headers)
        assert answer.status_code == 200, origin
        assert "access-control-allow-origin" not in answer.headers
        assert opened.client.options("/v1/suites/s", headers=headers).status_code == 405, "no preflight is answered"


def test_a_stale_cookie_does_not_shut_the_open_service(opened: Api) -> None:
    assert _with_cookie(opened, "left-by-another-service-on-this-machine").status_code == 200


def test_beyond_loopback_nothing_starts_without_a_key(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):  # noqa: S104 - that it is refused is the claim
        with pytest.raises(ConfigurationError, match="without an API key"):
            open_service(Settings(data_dir=tmp_path, host=host, secret_key=SECRET_KEY), environment={})
    with pytest.raises(ConfigurationError, match="COALMINE_SECRET_KEY"):
        open_service(Settings(data_dir=tmp_path / "new", host="0.0.0.0"), environment={})  # noqa: S104 - as above


def test_a_bootstrap_key_opens_a_service_beyond_loopback_once(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("bootstrap-key-0123456789\n", encoding="utf-8")
    settings: dict[str, Any] = {"host": "0.0.0.0", "secret_key": SECRET_KEY, "bootstrap_key_file": file}  # noqa: S104 - as above
    with api(tmp_path, **settings) as service:
        assert service.client.get("/v1/checks").status_code == 401, "a loopback Host header opens nothing here"
        admin = bearer("bootstrap-key-0123456789")
        assert service.client.put("/v1/hooks/ops", json=HOOK, headers=admin).status_code == 201
        (row,) = keys.list_keys(service.service.store)
        keys.revoke_key(service.service.store, row.prefix, now=datetime.now(UTC))
    with api(tmp_path, **settings) as service:
        assert service.client.get("/v1/checks", headers=admin).status_code == 401, "once revoked it stays so"
    file.write_text("short", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="at least 20 characters"):
        open_service(Settings(data_dir=tmp_path / "other", **settings), environment={})


# --- while everything is busy --------------------------------------------------------------------------------


def test_life_metrics_and_waiting_answer_while_every_thread_is_busy(tmp_path: Path) -> None:
    with api(tmp_path, with_worker=True, metrics_token=METRICS_TOKEN) as service:
        service.docs(enabled=False)
        admin = bearer(service.key(ADMIN))
        portal = service.client.portal
        assert portal is not None

        async def take_all_threads() -> None:
            limiter = current_default_thread_limiter()
            for number in range(int(limiter.total_tokens)):
                await limiter.acquire_on_behalf_of(number)

        async def give_them_back() -> None:
            limiter = current_default_thread_limiter()
            for number in range(int(limiter.total_tokens)):
                limiter.release_on_behalf_of(number)

        portal.call(take_all_threads)
        try:
            assert service.client.get("/livez").text == "ok\n"
            assert service.client.get("/readyz").status_code == 200
            assert service.client.get("/metrics", headers=bearer(METRICS_TOKEN)).status_code == 200
            assert service.client.get("/metrics", headers=admin).status_code == 200
            run = service.client.post("/v1/checks/docs/runs", json={"wait_seconds": 60}, headers=admin)
            assert (run.status_code, run.json()["status"]) == (200, "finished")
            assert service.client.post("/v1/checks/docs/runs", headers=admin).status_code == 202
        finally:
            portal.call(give_them_back)


def test_a_real_server_believes_no_forwarded_header(tmp_path: Path) -> None:
    with coalmine(tmp_path) as (url, _):
        port = int(url.rsplit(":", 1)[1])
        lines = ["GET /v1/checks HTTP/1.1", "Host: evil.example", "X-Forwarded-Host: localhost", "Connection: close"]
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall("\r\n".join([*lines, "X-Forwarded-For: 127.0.0.1", "", ""]).encode())
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 403 ")


def test_a_plant_is_defined_by_admins_alone(service: Api) -> None:
    """What is planted is written with the secrets of a retriever: a key that may write checks may not choose it."""
    sent = {"url": "http://127.0.0.1:9/gone/{{ id }}", "method": "DELETE", "query": {"a": "{{ id }}{{ text }}"}}
    body = {**CHECK, "plant": {**PLANT, "remove": sent}}

    def put(slug: str, scope: Scope, content: Mapping[str, Any]) -> int:
        return service.client.put(f"/v1/checks/{slug}", json=content, headers=bearer(KEYS[scope])).status_code

    assert put("planted-by-me", Scope.WRITE, body) == 403
    assert put("planted", Scope.WRITE, body) == 403
    assert put("planted", Scope.WRITE, {**CHECK, "plant": PLANT, "vars": {"tenant": "x"}}) in {403, 422}
    assert put("planted", Scope.WRITE, {**CHECK, "plant": PLANT, "k": 4}) == 200, "what is planted stays as it was"
    assert put("planted-by-me", Scope.ADMIN, body) == 201
