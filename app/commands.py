"""Commands that keep running: the service, a worker alone, the demo retriever. How it is served: see `serving`."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from logging import getLogger
from pathlib import Path
from typing import Annotated

import typer

from app import __version__, serving
from app.base.commands import DataDir, Ending, examples, note, now, stopped_by_signals
from app.base.db.files import lock_for_serving, lock_for_work
from app.base.documents.parsing import file_source
from app.base.errors import CoalmineError, ConfigurationError, InvalidInputError, Problem
from app.base.net.transfer import raise_descriptor_limit, return_freed_memory
from app.base.values import replace
from app.config import Settings, load_settings, service_links
from app.definitions.commands.resources import require_own_key
from app.logs import logging_as
from app.main import Service, create_app, create_worker_app, open_service
from app.operation.health import sign_of_life
from app.traffic.commands import seed_demo
from app.wiring import expect_secret_key

logger = getLogger("coalmine.cli")

app = typer.Typer(rich_markup_mode=None)

_SEEDING_SECONDS = 120.0
_SEEDING_POLL_SECONDS = 0.2

Port = Annotated[int | None, typer.Option(min=1, max=serving.LAST_PORT, help="Port to listen on; default: 8000.")]


@app.command(
    epilog=examples(
        "coalmine serve --with-demo --canaries canaries",
        "COALMINE_DATABASE_URL=postgresql://user@db/coalmine coalmine serve --host 0.0.0.0",
    )
)
def serve(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: 127.0.0.1.")] = None,
    port: Port = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Only answer; workers run elsewhere.")] = False,
    data_dir: DataDir = None,
    canaries: Annotated[Path | None, typer.Option(help="Canary files to apply at start and on SIGHUP.")] = None,
    with_demo: Annotated[bool, typer.Option("--with-demo", help="Also run the demo, on the port after.")] = False,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Log every HTTP request.")] = False,
) -> None:
    """Run the API, the web pages, the metrics and, by default, a worker.

    Settings come from COALMINE_... variables; flags win.
    """
    return_freed_memory(os.environ)
    settings = load_settings(os.environ, host=host, port=port, data_dir=data_dir, canaries=canaries)
    with logging_as(settings.log_format, requests=log_requests), _ending(settings) as ending, ExitStack() as stack:
        sockets = stack.enter_context(serving.bound(settings.host, settings.port))
        _log_service_links()
        expect_secret_key(settings)
        file = settings.database_file
        stack.enter_context(lock_for_serving(file))
        if not no_worker:
            stack.enter_context(lock_for_work(file))
        environment = dict(os.environ)
        beside = stack.enter_context(serving.demo_beside(settings.port)) if with_demo else None
        if beside is not None:
            environment.setdefault("DEMO_URL", beside.url)
            settings = replace(settings, hook_allow=settings.hook_allow or serving.LOOPBACK)
        service = open_service(settings, environment=environment, with_worker=not no_worker)
        stack.callback(service.store.close)
        if beside is not None:
            beside.wait()

        def announce() -> None:
            if settings.log_format == "json":
                fields = {"url": settings.url, "database": service.store.place, "open": serving.is_open(service)}
                logger.info("serving", extra=fields)
                return
            program = sys.argv[0] if Path(sys.argv[0]).name == "coalmine" else "coalmine"
            for line in serving.welcome(service, version=__version__, demo=beside, command=program):
                note(line)

        if beside is not None and service.worker is not None:
            stack.enter_context(_seeding_demo(service))
        lifecycle = serving.Lifecycle(announce=announce, stopping=lambda: _say_stopping(settings))
        serving.serve_app(create_app(service), sockets, log_requests=log_requests, lifecycle=lifecycle, ending=ending)


@contextmanager
def _seeding_demo(service: Service) -> Iterator[None]:
    """Put traffic and a finished task in, once, in a thread: the task takes a pool, which a worker makes."""
    given_up = threading.Event()
    folder = Path(__file__).parent / "demo"
    deadline = time.monotonic() + _SEEDING_SECONDS

    def seed() -> None:
        try:
            seed_demo(
                service.store,
                traffic_file=file_source(folder / "traffic.csv"),
                annotations_file=file_source(folder / "annotations.csv"),
                clock=now,
                wait=lambda: not given_up.wait(_SEEDING_POLL_SECONDS) and time.monotonic() < deadline,
                wake=lambda: None if service.worker is None else service.worker.wake(),
            )
        except CoalmineError as error:
            logger.warning("demo_samples_left_out", extra={"detail": str(error)})

    thread = threading.Thread(target=seed, name="coalmine-demo-samples", daemon=True)
    thread.start()
    try:
        yield
    finally:
        given_up.set()
        thread.join(_SEEDING_POLL_SECONDS)


def _log_service_links() -> None:
    links = service_links(os.environ)
    if links:
        detail = "set by Kubernetes for a Service, not settings; `enableServiceLinks: false` leaves them out"
        logger.info("service_links_ignored", extra={"variables": " ".join(links), "detail": detail})


def _nobody_asks() -> bool:
    """Return True: a worker without a port has no server that could end."""
    return True


@app.command(
    epilog=examples(
        "COALMINE_DATABASE_URL=postgresql://user@db/coalmine coalmine work",
        "COALMINE_DATABASE_URL=postgresql://user@db/coalmine coalmine work --host 0.0.0.0 --port 8000",
    )
)
def work(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on, with --port; default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=serving.LAST_PORT, help="Port of /livez, /readyz and /metrics; default: none."),
    ] = None,
) -> None:
    """Run a worker without the API and pages; any number may share one PostgreSQL database."""
    if host is not None and port is None:
        raise ConfigurationError("--host says where the worker listens; say on which port with --port")
    settings = load_settings(os.environ, host=host if port is not None else serving.LOOPBACK_HOST)
    if settings.embedded:
        raise ConfigurationError(
            "`coalmine work` needs PostgreSQL (COALMINE_DATABASE_URL): a SQLite file belongs to one process, "
            "and `coalmine serve` does its work"
        )
    return_freed_memory(os.environ)
    with logging_as(settings.log_format), _ending(settings), ExitStack() as stack:
        _log_service_links()
        require_own_key(settings)
        sockets = [] if port is None else stack.enter_context(serving.bound(settings.host, port))
        # What is in force is for `serve` and `apply` to say.
        service = open_service(replace(settings, canaries=None), environment=os.environ)
        service.exposition.process.config_left_to_others()
        stack.callback(service.store.close)
        if service.tracing is not None:
            stack.callback(service.tracing.close)
        if service.worker is None:
            raise CoalmineError("there is no worker")
        raise_descriptor_limit()
        if sockets:  # until the worker has stopped
            is_served = stack.enter_context(serving.answering_probes(create_worker_app(service), sockets))
        else:
            is_served = _nobody_asks
        service.worker.start()
        stack.callback(service.worker.stop)
        logger.info("working", extra={"database": service.store.place, "port": port})
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        sign = sign_of_life(settings.data_dir)
        stack.callback(sign.unlink, missing_ok=True)
        try:
            while service.worker.alive and is_served():
                sign.touch()
                threading.Event().wait(5)
        except KeyboardInterrupt:
            _say_stopping(settings)
            raise
        raise CoalmineError("a thread of the worker has ended; the log says why")


@app.command(epilog=examples("coalmine demo", """curl -d '{"kind": "loss"}' http://127.0.0.1:8001/fault"""))
def demo(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = serving.LOOPBACK_HOST,
    port: Annotated[int, typer.Option(min=1, max=serving.LAST_PORT, help="Port to listen on.")] = 8001,
    corpus: Annotated[list[Path] | None, typer.Option(help="JSONL files to serve instead of the bundled ones.")] = None,
    chunk_characters: Annotated[int | None, typer.Option(min=1, help="Cut texts into chunks this long.")] = None,
    until_stdin_ends: Annotated[bool, typer.Option("--until-stdin-ends", hidden=True)] = False,
) -> None:
    """Run the demo retriever alone: BM25 over a bundled corpus; POST /fault breaks it."""
    from app.demo.corpus import CorpusError  # noqa: PLC0415 - brings SciPy along, which no other command needs
    from app.demo.server import run_demo  # noqa: PLC0415 - the same

    with stopped_by_signals():
        with serving.bound(host, port):
            pass
        if until_stdin_ends:
            serving.end_with_stdin()
        else:
            note(f"The demo retriever is at http://{host}:{port}/; Ctrl-C stops it.")
        try:
            run_demo(host, port, corpus, chunk_characters)
        except CorpusError as error:
            raise InvalidInputError([Problem(message=str(error))]) from error
        except KeyboardInterrupt:
            return


@contextmanager
def _ending(settings: Settings) -> Iterator[Ending]:
    """End cleanly on Ctrl-C and SIGTERM, and say so."""
    try:
        with stopped_by_signals() as ending:
            yield ending
    except KeyboardInterrupt:
        if settings.log_format == "json":
            logger.info("stopped")
        else:
            note("Stopped.")


def _say_stopping(settings: Settings) -> None:
    if settings.log_format == "json":
        logger.info("stopping")
    else:
        note(serving.STOPPING)
