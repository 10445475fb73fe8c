"""Parts of a process, built from its settings: store, judges, links, ping and tracing."""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from app import USER_AGENT
from app.alerts.service.shown_alerts import Links
from app.answers.client import AnswerCalls, JudgeCalls
from app.answers.domain.judges import AskJudge
from app.answers.service.answering import AnswerTools
from app.base.api import requests
from app.base.db.engine import Store
from app.base.db.files import is_migrated, migrate
from app.base.errors import ConfigurationError
from app.catalog.service.vault import require_key
from app.config import Settings, read_trace_endpoint
from app.hooks.client.webhook import Pinger
from app.hooks.service.deliveries import Ping
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.retrievers import Probe

if TYPE_CHECKING:  # an extra; at run time it is imported where it is needed
    from app.tracing import Tracing


def open_store(settings: Settings, *, create: bool = True) -> Store:
    """Open the database with the schema of this release, migrating it where that goes without asking.

    Raises ConfigurationError saying what to do where it does not, and where there is no file of SQLite and `create`
    is false.
    """
    file = settings.database_file
    if create:
        create_database_file(settings)
    elif file is not None and not file.exists():
        raise ConfigurationError(
            f"there is no database at {file}; --data-dir or COALMINE_DATA_DIR say where yours is, and "
            "`coalmine serve` or `coalmine apply` make a new one"
        )
    store = Store(settings.database)
    try:
        _prepare_store(settings, store)
    except BaseException:
        store.close()
        raise
    return store


def expect_secret_key(settings: Settings) -> None:
    """Refuse to generate a key beyond loopback, before anything is written. Raises ConfigurationError."""
    require_key(settings.secret_key, loopback=requests.is_loopback(settings.host))


def create_database_file(settings: Settings) -> None:
    """Create the folder and the file of SQLite, readable by its owner alone: it holds queries and texts."""
    file = settings.database_file
    if settings.embedded:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    if file is not None:
        with suppress(OSError):  # there is one; or SQLite will say what is wrong with the place
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def build_judge_calls(settings: Settings) -> AskJudge:
    """Return what asks language models about texts."""
    return JudgeCalls(RetrieverProbe(settings.retriever_addresses, USER_AGENT).services)


def build_answer_tools(probe: Probe) -> AnswerTools | None:
    """Return what asks for generated answers and judges, by the clients of a real probe; None = it is no real one."""
    if not isinstance(probe, RetrieverProbe):
        return None
    return AnswerTools(ask_answers=AnswerCalls(probe.services), ask_judge=JudgeCalls(probe.services))


def build_ping(settings: Settings) -> Ping | None:
    """Return the ping to an external monitor, None where none is set; it may reach what hooks may."""
    if settings.ping_url is None:
        return None
    return Pinger(url=settings.ping_url, policy=settings.hook_addresses, user_agent=USER_AGENT)


def build_tracing(environment: Mapping[str, str]) -> "Tracing | None":
    """Return the tracing of runs, None where no collector is set. Raises ConfigurationError."""
    if read_trace_endpoint(environment) is None:
        return None
    try:
        from app.tracing import open_tracing  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is an extra that is not installed: "
            "pip install 'coalmine[otel]'"
        ) from error
    return open_tracing(USER_AGENT)


def build_links(settings: Settings) -> Links:
    """Return the links of notifications."""
    return Links(public_url=settings.url, dashboard_url=settings.dashboard_url, runbook_url=settings.runbook_url)


def _prepare_store(settings: Settings, store: Store) -> None:
    if settings.embedded or settings.auto_migrate:
        migrate(store)
    elif not is_migrated(store):
        raise ConfigurationError(
            "the database does not have the schema of this release: run `coalmine migrate`, "
            "or set COALMINE_AUTO_MIGRATE=true"
        )
