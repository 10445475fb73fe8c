"""Inputs of a run: suite, retriever, and how answers are judged."""

from dataclasses import dataclass
from typing import NamedTuple

from app.base.rate_control import LONGEST_PATIENCE_SECONDS
from app.base.values import Canary
from app.catalog.domain.suite_snapshot import SuiteSnapshot
from app.detection.domain import Members
from app.retrievers.domain.retrievers import ProbeQuery, Retriever
from app.scoring.aggregate_vectors import vector_names
from app.scoring.evaluation import Panel, Yardstick
from app.scoring.rankings import decimals_of


class RunVersions(NamedTuple):
    """The ids of the versions of a run's definitions."""

    suite: int
    check: int
    retriever: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInputs:
    """Inputs of a run. Positions count along the canaries of the suite."""

    check: str
    """Its slug."""
    suite_slug: str
    suite: SuiteSnapshot
    retriever: Retriever
    """Its secrets are placeholders where no request is sent."""
    yardstick: Yardstick
    config_hash: str
    """Hash of the definitions of check and retriever."""
    patience_seconds: float = LONGEST_PATIENCE_SECONDS
    """For how long a run is patient with a retriever that refuses every request."""
    answer_measures: tuple[str, ...] = ()
    """Measures of generated answers, which come after the run has ended."""
    judge: str | None = None
    """Slug of the judge that reads them."""

    @property
    def panel(self) -> Panel:
        """The matcher of the canaries. Raises UnusableSuiteError."""
        return self.suite.panel

    @property
    def canaries(self) -> tuple[Canary, ...]:
        """The canaries by position."""
        return self.suite.canaries

    @property
    def canary_ids(self) -> tuple[int, ...]:
        """The ids of the canaries by position."""
        return self.suite.canary_ids

    @property
    def version_ids(self) -> tuple[int, ...]:
        """The ids of their versions by position."""
        return self.suite.version_ids

    @property
    def watched(self) -> Members:
        """The canaries a detector watches."""
        return self.suite.watched

    @property
    def asks(self) -> list[ProbeQuery]:
        """The probes of the run, by position."""
        return [ProbeQuery(position=place, query=one.query, key=one.key) for place, one in enumerate(self.canaries)]

    @property
    def decimals(self) -> int:
        """The significant decimals of scores."""
        return decimals_of(self.retriever.score_precision)

    @property
    def vector_names(self) -> tuple[str, ...]:
        """The names of the numbers stored with the run."""
        return (*vector_names(self.yardstick, self.panel), *self.answer_measures)
