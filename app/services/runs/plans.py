"""What a run works with, frozen when it starts, so that editing definitions never changes a run under way."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from app.domain.detection import Members
from app.domain.errors import CoalmineError, InvalidInputError
from app.domain.model import Ranking, Trigger
from app.domain.probing.retrievers import Retriever
from app.domain.runs.evaluation import Panel, Yardstick
from app.domain.runs.measures import MEASURES_VERSION
from app.domain.runs.rankings import decimals_of
from app.domain.runs.verdicts import NOT_CARRIED_OUT
from app.formats.catalog.documents import CheckDocument, RetrieverDocument
from app.formats.catalog.secret_fields import config_hash, join_secrets
from app.formats.fields import Document
from app.formats.validation_messages import parse_document
from app.services.aggregates import vector_names
from app.services.catalog.suite_snapshots import SuiteSnapshot, UnusableSuiteError, freeze_suite, load_suite
from app.services.catalog.vault import Vault
from app.store.catalog import definitions, suites
from app.store.catalog.definitions import Definition
from app.store.engine import Connection, Store, cached, from_us, to_us
from app.store.runs import queue, recording, results
from app.store.runs.queue import ClaimedRun
from app.store.runs.recording import OpenState

SHARD = 100
"""Probes per shard: what is staged at once, and asked again at most after a crash."""

_DOCUMENT_BYTES: Final = 10_000
"""Of a check or a retriever, at most about so much."""

DocumentT = TypeVar("DocumentT", bound=Document)


class NotExecutableError(CoalmineError):
    """The run cannot be carried out as things are defined."""


def asked_in(shards: Iterable[int], total: int | None) -> int:
    """Count the canaries in these shards of a run that asks so many; the last shard may hold fewer than the others."""
    return sum(max(0, min(SHARD, (total or 0) - number * SHARD)) for number in shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a run needs. Positions count along the frozen canary list."""

    run: ClaimedRun
    started_at: datetime
    index_version: str | None
    """What the caller said; a version the retriever reports takes its place."""
    suite: str
    panel: Panel
    canary_ids: tuple[int, ...]
    version_ids: tuple[int, ...]
    members: Members
    """Those of them a detector watches."""
    retriever: Retriever
    decimals: int
    yardstick: Yardstick
    layout_id: int
    vector_names: tuple[str, ...]
    vector_layout_id: int
    held: dict[int, OpenState]
    """What holds now for each canary, by canary id."""
    seen: dict[int, Ranking] = field(default_factory=dict)
    """Rankings this process stored or read during the run."""

    @property
    def shard_count(self) -> int:
        """How many shards the run has."""
        return -(-len(self.panel) // SHARD)

    def positions(self, shard: int) -> range:
        """Give the positions of a shard."""
        return range(shard * SHARD, min((shard + 1) * SHARD, len(self.panel)))

    def still_holds(self, state: OpenState, ranking_id: int, position: int) -> bool:
        """Whether a stored state says all there is to say about this answer."""
        return (
            state.ranking_id == ranking_id
            and state.canary_version_id == self.version_ids[position]
            and state.layout_id == self.layout_id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What an ended run worked with, ready to ask the retriever more. Positions count along the frozen canary list."""

    panel: Panel
    canary_ids: tuple[int, ...]
    version_ids: tuple[int, ...]
    members: Members
    """Those of them a detector watches."""
    retriever: Retriever
    yardstick: Yardstick
    decimals: int


class Planner:
    """Makes plans; suites, checks and retrievers, which never change under their version, are read once."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self.store = store
        self._vault = vault

    def plan(self, claimed: ClaimedRun, now: datetime) -> Plan:
        """Freeze what the run works with, or read what was frozen when it first started.

        Raises NotExecutableError saying why it cannot be carried out.
        """
        self._load_suite(claimed, now)
        with self.store.write() as connection:
            run = results.find_run(connection, claimed.id)
            if run is None:
                raise NotExecutableError("the run is gone")
            check, retriever, suite_version_id, configured = self._definitions(connection, run, now)
            suite = _suite(connection, suite_version_id)
            if not len(suite.panel):
                raise NotExecutableError(f"suite '{check.suite}' has no canaries")
            yardstick = check.yardstick(retriever.scorer)
            names = vector_names(yardstick, suite.panel)
            measures = [str(measure) for measure in yardstick.measures]
            layout_id = recording.layout_id(connection, measures, MEASURES_VERSION, str(yardstick))
            vector_layout_id = recording.layout_id(connection, names, MEASURES_VERSION, "")
            queue.freeze(connection, claimed.id, config_hash=configured)
        with self.store.read() as connection:
            held = recording.open_states(connection, claimed.check_id)
        return Plan(
            run=claimed,
            started_at=from_us(claimed.started_at),
            index_version=run.index_version,
            suite=check.suite,
            panel=suite.panel,
            canary_ids=suite.canary_ids,
            version_ids=suite.version_ids,
            members=suite.watched,
            retriever=retriever,
            decimals=decimals_of(retriever.score_precision),
            yardstick=yardstick,
            layout_id=layout_id,
            vector_names=names,
            vector_layout_id=vector_layout_id,
            held=held,
        )

    def setup(self, connection: Connection, run: results.RunRow) -> Setup:
        """Give what a run worked with. Raises NotExecutableError where that cannot be used any more."""
        if run.check_version_id is None or run.retriever_version_id is None or run.suite_version_id is None:
            raise NotExecutableError("the run has not started")
        check, retriever, suite_version_id, _ = self._frozen(
            connection, (run.check_version_id, run.retriever_version_id, run.suite_version_id)
        )
        suite = _suite(connection, suite_version_id)
        return Setup(
            panel=suite.panel,
            canary_ids=suite.canary_ids,
            version_ids=suite.version_ids,
            members=suite.watched,
            retriever=retriever,
            yardstick=check.yardstick(retriever.scorer),
            decimals=decimals_of(retriever.score_precision),
        )

    def _load_suite(self, claimed: ClaimedRun, now: datetime) -> None:
        """Have the suite of a run frozen and prepared, so that the write transaction need not; see `plan` for why not.

        What is missing or refused is told there. Should the suite be edited in between, it is frozen there.
        """
        with self.store.read() as connection:
            run = results.find_run(connection, claimed.id)
            if run is None:
                return
            version_id = run.suite_version_id
            suite = _suite_in_force(connection, definitions.definition_by_id(connection, run.check_id))
        if version_id is None:
            if suite is None:
                return
            version_id = freeze_suite(self.store, suite.id, now)
        with self.store.read() as connection, suppress(NotExecutableError):
            _suite(connection, version_id)

    def _definitions(
        self, connection: Connection, run: results.RunRow, now: datetime
    ) -> tuple[CheckDocument, Retriever, int, str]:
        if run.check_version_id is None or run.retriever_version_id is None or run.suite_version_id is None:
            ids = _freeze(connection, run, now)
        else:
            ids = (run.check_version_id, run.retriever_version_id, run.suite_version_id)
        return self._frozen(connection, ids)

    def _frozen(self, connection: Connection, ids: tuple[int, int, int]) -> tuple[CheckDocument, Retriever, int, str]:
        check_version_id, retriever_version_id, suite_version_id = ids
        check_content, retriever_content = (definitions.version_body(connection, version) for version in ids[:2])
        check = cached(
            connection,
            ("check", check_version_id),
            lambda: (_stored("the check", CheckDocument, check_content.body), _DOCUMENT_BYTES),
        )
        # Secrets may be renewed without a new version: what they are encrypted to is part of the name.
        retriever = cached(
            connection,
            ("retriever", retriever_version_id, retriever_content.secrets),
            lambda: (self._retriever(retriever_content), _DOCUMENT_BYTES),
        )
        return check, retriever, suite_version_id, config_hash(check_content.hash, retriever_content.hash)

    def _retriever(self, content: definitions.Content) -> Retriever:
        whole = join_secrets(content.body, self._vault.decrypt(content.secrets))
        return _stored("the retriever", RetrieverDocument, whole).to_domain()


def _suite(connection: Connection, version_id: int) -> SuiteSnapshot:
    """Return a suite ready for judging."""
    try:
        suite = load_suite(connection, version_id)
        suite.prepare()
    except UnusableSuiteError as error:
        raise NotExecutableError(str(error)) from None
    return suite


def _suite_in_force(connection: Connection, check: Definition) -> Definition | None:
    suite = definitions.find_definition(connection, "suite", check.body["suite"])
    return None if suite is None or suite.archived_at is not None else suite


def _stored(name: str, model: type[DocumentT], body: Mapping[str, Any]) -> DocumentT:
    """Read a document of the store, where a release may have left it that allowed what this one refuses."""
    try:
        return parse_document(model, body)
    except InvalidInputError as error:
        raise NotExecutableError(f"{name} cannot be used as it is defined: {error}") from None


def _freeze(connection: Connection, run: results.RunRow, now: datetime) -> tuple[int, int, int]:
    check = definitions.definition_by_id(connection, run.check_id)
    if check.archived_at is not None:
        raise NotExecutableError(f"check '{check.slug}' is archived: {NOT_CARRIED_OUT}")
    if not check.body["enabled"] and (run.trigger == Trigger.SCHEDULE or run.created_at < check.updated_at):
        raise NotExecutableError(f"check '{check.slug}' was disabled while the run was queued: {NOT_CARRIED_OUT}")
    retriever = definitions.find_definition(connection, "retriever", check.body["retriever"])
    if retriever is None or retriever.archived_at is not None:
        raise NotExecutableError(f"retriever '{check.body['retriever']}' does not exist or is archived")
    suite = _suite_in_force(connection, check)
    if suite is None:
        raise NotExecutableError(f"suite '{check.body['suite']}' does not exist or is archived")
    suite_version_id = suites.freeze_suite(connection, suite.id, to_us(now))
    queue.freeze(
        connection,
        run.id,
        check_version_id=check.version_id,
        retriever_version_id=retriever.version_id,
        suite_version_id=suite_version_id,
    )
    return check.version_id, retriever.version_id, suite_version_id
