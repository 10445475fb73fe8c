"""What rules look at: the newest ended runs of a check, each judged by a rule as the rule is now.

How many bad ones open an alert is decided in the domain, by alerting.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.alerting import Observation, window_length
from app.domain.model import Rule, Verdict
from app.domain.rules import condition
from app.services.summaries import stored_aggregates
from app.store import history
from app.store.engine import Connection, from_us
from app.store.history import RunRow

_FURTHEST_BACK = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The newest ended runs of a check, oldest first: as many as every rule needs."""

    runs: Sequence[RunRow]

    @property
    def newest(self) -> RunRow | None:
        """The run that ended last."""
        return self.runs[-1] if self.runs else None

    def of(self, rule: Rule) -> list[Observation]:
        """Judge the runs by a rule, oldest first. Raises ValueError for `no_data`, which is not judged by runs."""
        return [
            Observation(
                run_id=row.id,
                at=from_us(row.finished_at or row.created_at),
                condition=condition(rule, stored_aggregates(row), unknown=row.verdict == Verdict.UNKNOWN),
            )
            for row in self.runs
        ]


def gather(connection: Connection, check_id: int, rules: Sequence[Rule]) -> Facts:
    """Read as many of the newest ended runs as every rule needs to see its measured ones."""
    needed = max((window_length(rule) for rule in rules), default=1)
    limit = needed
    while True:
        rows = history.ended_runs(connection, check_id, limit=limit)
        known = sum(row.verdict != Verdict.UNKNOWN for row in rows)
        if known >= needed or len(rows) < limit or limit >= _FURTHEST_BACK:
            return Facts(runs=rows)
        limit *= 4
