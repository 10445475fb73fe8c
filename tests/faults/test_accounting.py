"""The accounts see what they are there to see: each kind of harm is done to the rows or logs of a sound trial."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.alerts.tables import alerts, transitions
from app.base.values import replace
from app.hooks.tables import deliveries
from tests.faults.accounting import Account, take_account
from tests.faults.bench import Bench, Load, Service, bench

pytestmark = pytest.mark.systems

Lines = list[dict[str, Any]]
COUNT = 5


@dataclass(frozen=True, kw_only=True)
class Settled:
    """A trial without a fault, whose check went bad and good again."""

    trial: Bench
    service: Service
    until: int

    def account(self, trial: Bench | None = None, service: Service | None = None) -> Account:
        """Take account, of parts of it that were replaced."""
        return take_account(trial or self.trial, service or self.service, self.until, faults=1)


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settled]:
    with bench(tmp_path_factory.mktemp("settled"), 200, Load(checks=1, canaries=COUNT, every="31d")) as trial:
        service = trial.serve()
        trial.deadline.until("the first run has ended", trial.ended_runs)
        for is_missing in (True, False):
            trial.set_missing(is_missing=is_missing)
            trial.ask_for_runs(service)
            trial.settle()
        yield Settled(trial=trial, service=service, until=trial.newest_run())


def test_without_a_fault_nothing_is_wrong(settled: Settled) -> None:
    account = settled.account()
    assert account.wrong == {}
    assert (account.runs, account.results, account.alerts, account.deliveries) == (3, 3 * COUNT, 1, 2)
    assert (account.probes, account.probes_repeated, account.sent_again) == (3 * COUNT, 0, 0)


# --- rows ----------------------------------------------------------------------------------------------------

_RESOLVED = sa.select(transitions.c.id).where(transitions.c.type == "resolved").scalar_subquery()


@pytest.mark.parametrize(
    ("wrong", "statement"),
    [
        ("finalised_again", sa.text("INSERT INTO fault_endings VALUES (1)")),
        ("unfinished", sa.text("UPDATE runs SET status = 'running' WHERE id = 3")),
        ("alerts_missing", sa.update(transitions).where(transitions.c.type == "resolved").values(type="reminded")),
        ("alerts_again", sa.update(transitions).where(transitions.c.type == "resolved").values(run_id=1)),
        ("alerts_missing", sa.update(alerts).values(rule_key="another")),
        ("never_delivered", sa.update(deliveries).where(deliveries.c.type == "alert.resolved").values(state="dead")),
        ("never_delivered", sa.update(deliveries).values(message_id=deliveries.c.message_id + "x")),
        ("never_delivered", sa.delete(deliveries).where(deliveries.c.transition_id == _RESOLVED)),
    ],
)
def test_rows_that_are_wrong_are_seen(settled: Settled, tmp_path: Path, wrong: str, statement: Any) -> None:
    file = tmp_path / "copy.db"
    with settled.trial.engine.connect() as connection:
        connection.exec_driver_sql("VACUUM INTO ?", (str(file),))
    engine = sa.create_engine(f"sqlite:///{file}", poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(statement)
    account = settled.account(replace(settled.trial, engine=engine))
    assert account.wrong.get(wrong), account


# --- results -------------------------------------------------------------------------------------------------


class Harmed(Service):
    """Answers as the service does, but for the results of run 2."""

    harm: Callable[[Lines], object]

    def get(self, path: str, **parameters: Any) -> Any:
        """Ask it, and change the answer."""
        answer = super().get(path, **parameters)
        if path == "/v1/runs/2/results":
            self.harm(answer["items"])
        return answer


def _swap(results: Lines) -> None:
    results[0]["ranking"], results[1]["ranking"] = results[1]["ranking"], results[0]["ranking"]


def _repeat(results: Lines) -> None:
    results[0]["ranking"] = results[1]["ranking"]


@pytest.mark.parametrize(
    ("wrong", "harm"),
    [
        ("lost", lambda results: results.pop()),
        ("lost", lambda results: results[0].update(outcome="skipped")),
        ("doubled", lambda results: results.append(results[0])),
        ("doubled", lambda results: results[0].update(ranking=[])),
        ("doubled", _swap),
        ("doubled", _repeat),
    ],
)
def test_results_that_are_wrong_are_seen(settled: Settled, wrong: str, harm: Callable[[Lines], object]) -> None:
    service = Harmed(child=settled.service.child, port=settled.service.port)
    service.harm = harm
    assert settled.account(service=service).wrong.get(wrong)


# --- logs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "harm"),
    [
        ("out_of_order", lambda lines: lines.reverse()),
        ("never_delivered", lambda lines: lines.pop()),
        ("never_delivered", lambda lines: lines[0].update(status=500)),
        ("sent_again", lambda lines: lines.append(lines[0])),
        ("changed_bodies", lambda lines: lines.append({**lines[0], "body": {}})),
    ],
)
def test_what_the_receiver_did_not_get_as_it_should_is_seen(
    settled: Settled, tmp_path: Path, figure: str, harm: Callable[[Lines], object]
) -> None:
    lines = settled.trial.receiver.lines()
    harm(lines)
    receiver = replace(settled.trial.receiver, log=_write(tmp_path, lines))
    assert getattr(settled.account(replace(settled.trial, receiver=receiver)), figure)


def test_probes_that_are_asked_again_are_counted(settled: Settled, tmp_path: Path) -> None:
    lines = settled.trial.retriever.lines()
    log = _write(tmp_path, [*lines, {**lines[0], "serial": 99}])
    account = settled.account(replace(settled.trial, retriever=replace(settled.trial.retriever, log=log)))
    assert (account.probes_repeated, account.wrong) == (1, {})


def _write(folder: Path, lines: Lines) -> Path:
    file = folder / "log"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return file
