"""The service put together: settings in, FastAPI app out."""

import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute

from app import USER_AGENT, __version__
from app.base.addresses import LookUp
from app.base.api import requests
from app.base.api.bodies import Gate, install_problems
from app.base.api.requests import SubPath, path_of, require_free
from app.base.api.trusted_proxies import TrustedProxies
from app.base.db import keys
from app.base.db.engine import Store
from app.base.db.keys import Scope, Vault
from app.base.errors import CoalmineError, ConfigurationError, StoreUnavailableError
from app.base.web.pages import Compression, install_pages
from app.catalog.documents.canary_files import Documents, canary_paths, config_hash, read_files
from app.catalog.service.vault import open_vault
from app.catalog.store import FILE
from app.config import Settings
from app.definitions.service import applying
from app.diagnosis.service.diagnoses import OnDemand
from app.hooks.client.webhook import Sender, addresses_of
from app.hooks.domain import Send
from app.hooks.service.hooks import notes_on_hooks
from app.operation.api import install_openapi, probes
from app.operation.client import OpenIdProvider
from app.operation.domain import RETURN_PATH, Provider
from app.operation.service.self_monitor import report_store
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine, untraced
from app.reports import metrics
from app.reports.pages.public import PublicPages
from app.retrievers.client.probe import RetrieverProbe, read_pasted
from app.retrievers.domain.retrievers import Probe
from app.runs.service.change_feed import Endings, Streams
from app.runs.service.execution import share_limits
from app.site import PAGES, ROUTERS
from app.wiring import build_answer_tools, build_links, build_ping, build_tracing, expect_secret_key, open_store

if TYPE_CHECKING:  # an extra; at run time it is imported where it is wanted
    from app.tracing import Tracing

logger = logging.getLogger("coalmine")

SHARED_SETTINGS = ("retriever_allow", "hook_allow", "retention_days", "public_url", "dashboard_url", "runbook_url")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Open resources of a process: store, vault, metrics, probe and, unless it only serves, a worker."""

    settings: Settings
    store: Store
    vault: Vault
    exposition: metrics.Exposition
    worker: Worker | None
    probe: Probe
    environment: Mapping[str, str]
    tracing: "Tracing | None" = None
    look_up: LookUp = addresses_of


def create_app(service_: Service) -> FastAPI:
    """Return the app of an opened service; its lifespan runs the embedded worker."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        if service_.worker is not None:
            service_.worker.start()
        async with anyio.create_task_group() as group:
            group.start_soon(_reload_on_hangup, service_)
            if service_.worker is None:
                group.start_soon(_refresh_snapshot, service_)
            yield
            group.cancel_scope.cancel()
        if service_.worker is not None:
            await anyio.to_thread.run_sync(service_.worker.stop)
        if service_.tracing is not None:
            await anyio.to_thread.run_sync(service_.tracing.close)
        service_.store.close()

    path = path_of(service_.settings.public_url)
    app = FastAPI(
        title="Coalmine",
        servers=[{"url": path}] if path else None,
        version=__version__,
        summary="Canary monitoring for retrieval.",
        lifespan=lifespan,
        routes=[*_routes()],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # both are routes of our own, so that the one dependency covers them
        redirect_slashes=False,
    )
    _give_access(app, service_)
    app.state.probe = service_.probe
    app.state.read = read_pasted
    app.state.diagnoses = OnDemand()
    app.state.streams = Streams(service_.store)
    app.state.endings = Endings(service_.store)
    if service_.worker is not None:
        service_.worker.call_when_ended(app.state.endings.notify)
    app.state.links = build_links(service_.settings)
    app.state.public_pages = PublicPages()
    app.state.hook_policy = service_.settings.hook_addresses
    app.state.look_up = service_.look_up
    install_problems(app)
    app.add_middleware(Compression)
    app.add_middleware(Gate)
    install_openapi(app)
    install_pages(app)
    if path:
        require_free(path, iter_route_contexts(app.routes))
        app.add_middleware(SubPath, path=path)
    return app


def create_worker_app(service_: Service) -> FastAPI:
    """Return the app of a worker alone: liveness, readiness and metrics. Who starts the worker ends it."""
    app = FastAPI(
        title="Coalmine worker",
        version=__version__,
        routes=[*_probe_routes()],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    _give_access(app, service_)
    install_problems(app)
    app.add_middleware(Compression)
    app.add_middleware(Gate)
    return app


def _give_access(app: FastAPI, service_: Service) -> None:
    """Set what authentication and the probes of a process need."""
    app.state.access = requests.Access(
        store=service_.store,
        vault=service_.vault,
        loopback=requests.is_loopback(service_.settings.host),
        metrics_token=service_.settings.metrics_token,
        proxies=TrustedProxies(
            networks=service_.settings.trusted_proxies,
            scopes=[(group, Scope(scope)) for group, scope in service_.settings.remote_scopes],
            public_url=service_.settings.url,
        ),
        has_provider=service_.settings.oidc_issuer is not None,
    )
    app.state.provider = _provider(service_.settings)
    app.state.exposition = service_.exposition
    app.state.worker = service_.worker


def _provider(settings: Settings) -> Provider | None:
    """Return the OpenID provider that signs people in; None = there is none."""
    if settings.oidc_issuer is None or settings.oidc_client_id is None:
        return None
    return OpenIdProvider(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        client_secret=settings.oidc_client_secret,
        redirect_uri=f"{settings.url}{RETURN_PATH}",
        name_claim=settings.oidc_name_claim,
        groups_claim=settings.oidc_groups_claim,
        policy=settings.provider_addresses,
        user_agent=USER_AGENT,
    )


@cache
def _probe_routes() -> Sequence[BaseRoute]:
    return guarded(probes)


@cache
def _routes() -> Sequence[BaseRoute]:
    """Return the routes of the API and the pages.

    One list per process, whatever the number of its apps: each route is prepared at its first request, which takes
    longer than most answers.
    """
    return guarded(*ROUTERS, *PAGES)


def guarded(*routers: APIRouter) -> list[BaseRoute]:
    """Return the routes of routers. Raises TypeError for one that does not ask who calls."""
    routes = [route for router in routers for route in router.routes]
    for route in routes:
        if not isinstance(route, requests.Route):
            raise TypeError(f"{route} asks nobody who they are: make its router with app.base.api.requests")
    return routes


def open_service(
    settings: Settings,
    *,
    environment: Mapping[str, str],
    with_worker: bool = True,
    probe: Probe | None = None,
    send: Send | None = None,
) -> Service:
    """Open everything a process needs, refusing to start where it must not. `probe` and `send` are the two seams.

    Raises ConfigurationError with what to do, InvalidInputError for canary files that cannot be applied.
    """
    loopback = requests.is_loopback(settings.host)
    expect_secret_key(settings)
    tracing = build_tracing(environment) if with_worker else None
    if settings.secret_key is None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)  # the generated key goes there
    store = open_store(settings)
    try:
        vault = open_vault(settings.secret_key, settings.data_dir, store, loopback=loopback)
        _prepare_keys(settings, store, loopback=loopback)
        applied = None
        if settings.canaries is not None:
            applied = apply_canaries(settings.canaries, store, vault, environment)
            _log_unreachable_hooks(settings, applied)
    except BaseException:
        store.close()
        raise
    exposition = metrics.Exposition.create()
    exposition.process.config_in_force(_shared_config_hash(settings, applied))
    with suppress(StoreUnavailableError):
        exposition.snapshot.refresh(store)
    worker = None
    own_probe = probe or RetrieverProbe(settings.retriever_addresses, USER_AGENT)
    probe = share_limits(store, own_probe)
    if with_worker:
        engine = Engine(
            store=store,
            vault=vault,
            probe=probe if tracing is None else tracing.probe(probe),
            trace=untraced if tracing is None else tracing.run,
            embed=own_probe.embed if isinstance(own_probe, RetrieverProbe) else None,
            answers=build_answer_tools(own_probe),
            send=send or Sender(policy=settings.hook_addresses, user_agent=USER_AGENT),
            links=build_links(settings),
            owner=f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}",
            retention_days=settings.retention_days,
            ping=build_ping(settings),
            ping_seconds=settings.ping_interval,
            run_threads=settings.run_threads,
        )
        worker = Worker(engine, exposition.process, exposition.snapshot)
        exposition.process.watch_worker(lambda: worker.alive)
        exposition.process.watch_lag(lambda: worker.lag)
    return Service(
        settings=settings,
        store=store,
        vault=vault,
        exposition=exposition,
        worker=worker,
        probe=probe,
        environment=environment,
        tracing=tracing,
    )


def apply_canaries(path: Path, store: Store, vault: Vault, environment: Mapping[str, str]) -> Documents:
    """Apply canary files: all of them or, with InvalidInputError, none. Returns their documents.

    A folder without files is accepted only while files manage nothing: behind it may be a volume that is not mounted,
    which must not archive every check.
    """
    if not canary_paths(path) and not applying.diff(store, vault, Documents(), managed_by=FILE, now=datetime.now(UTC)):
        logger.warning("canary_folder_empty", extra={"path": str(path)})
        return Documents()
    documents = read_files([path], environment)
    changes = applying.apply(store, vault, documents, managed_by=FILE, now=datetime.now(UTC))
    for change in changes:
        if change.kind == "hook" and change.note is not None:
            logger.warning("hook_changed", extra={"hook": change.name, "detail": change.note})
    logger.info("canaries_applied", extra={"path": str(path), "changes": len(changes)})
    return documents


def _log_unreachable_hooks(settings: Settings, applied: Documents) -> None:
    for slug, warning in notes_on_hooks(settings.hook_addresses, [hook.data() for hook in applied.hooks], addresses_of):
        logger.warning("hook_not_reachable", extra={"hook": slug, "detail": warning})


def _shared_config_hash(settings: Settings, applied: Documents | None) -> str:
    return config_hash(applied, {name: getattr(settings, name) for name in SHARED_SETTINGS})


def _prepare_keys(settings: Settings, store: Store, *, loopback: bool) -> None:
    if settings.bootstrap_key_file is not None:
        keys.bootstrap_key(store, settings.bootstrap_key_file, now=datetime.now(UTC))
    if not loopback and not keys.any_key_ever(store):
        raise ConfigurationError(
            f"refusing to listen on {settings.host} without an API key: create one with "
            "`coalmine keys create --scope admin`, or set COALMINE_BOOTSTRAP_KEY_FILE"
        )


async def _reload_on_hangup(service_: Service) -> None:
    """Apply the canary files again on SIGHUP; an error leaves everything in force."""
    path = service_.settings.canaries
    in_main = threading.current_thread() is threading.main_thread()  # no other thread may take signals
    if path is None or not in_main or not hasattr(signal, "SIGHUP"):
        return
    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        async for _ in signals:
            await anyio.to_thread.run_sync(_reload, service_, path)


def _reload(service_: Service, path: Path) -> None:
    try:
        applied = apply_canaries(path, service_.store, service_.vault, service_.environment)
    except CoalmineError as error:
        service_.exposition.process.config_reloaded(successful=False)
        logger.error("canaries_not_applied", extra={"path": str(path), "detail": str(error)})  # noqa: TRY400 - expected, no trace
        return
    _log_unreachable_hooks(service_.settings, applied)
    service_.exposition.process.config_in_force(_shared_config_hash(service_.settings, applied))
    service_.exposition.process.config_reloaded(successful=True)
    if service_.worker is not None:
        service_.worker.wake()


async def _refresh_snapshot(service_: Service) -> None:
    """Refresh the metrics snapshot every few seconds, where no worker does."""
    while True:
        with suppress(StoreUnavailableError):
            await anyio.to_thread.run_sync(report_store, service_.exposition.process.monitor, service_.store)
            await anyio.to_thread.run_sync(service_.exposition.snapshot.refresh, service_.store)
        await anyio.sleep(5)
