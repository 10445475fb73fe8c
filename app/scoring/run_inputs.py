"""What a run works with: the suite version, its canaries prepared for judging, the yardstick, the retriever.

Immutable, and cached by suite version: runs, pages, notices and rules share them. `catalog.service.suites` loads
suites, `suites` says what one can notice; `evaluation` judges answers by these, `run_outcomes` whole runs.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.base.errors import ConflictError
from app.base.schedules import LONGEST_PATIENCE_SECONDS
from app.base.values import (
    ANSWERED_RATIO,
    COVERAGE,
    DEFAULT_CATEGORY,
    OWN_MEASURES,
    Canary,
    Category,
    Rule,
    Value,
    empty_mapping,
    field,
)
from app.detection.domain import Members
from app.retrievers.domain.retrievers import ProbeQuery, Retriever, Scorer
from app.scoring.measures import Measure, mean_name, measures_for
from app.scoring.rankings import Prepared, decimals_of, prepare
from app.scoring.suites import SuiteFloors, SuitePower, power_of


class Yardstick(Value):
    """How the answers of a check are judged."""

    k: int
    fetch_k: int
    measures: tuple[Measure, ...]
    scorer: Scorer
    rules: tuple[Rule, ...]

    @classmethod
    def of(
        cls, *, k: int, fetch_k: int, cutoffs: Sequence[int], scorer: Scorer, rules: tuple[Rule, ...]
    ) -> "Yardstick":
        """Return the yardstick with the measures at the check's cut-offs and at its own k."""
        return cls(k=k, fetch_k=fetch_k, measures=measures_for({*cutoffs, k}), scorer=scorer, rules=rules)

    def reorder_vector(self, names: Sequence[str], vector: bytes) -> bytes:
        """Return a stored vector, whose numbers have these names, in the order of `measures`; NaN = it has none."""
        numbers = dict(zip(names, np.frombuffer(vector).tolist(), strict=True))
        return np.array([numbers.get(str(measure), np.nan) for measure in self.measures]).tobytes()

    def __str__(self) -> str:
        """Return what a stored result depends on besides the measures."""
        scorer = self.scorer
        text = f"k={self.k} fetch_k={self.fetch_k} scorer={scorer.kind} scale={scorer.scale} anchor={scorer.anchor}"
        model = scorer.embedder.model if scorer.embedder is not None else scorer.model
        return text if model is None else f"{text} model={model}"


class Panel:
    """The canaries of a suite version, prepared once for many runs; immutable."""

    def __init__(self, canaries: Sequence[Canary]) -> None:
        self.canaries = tuple(canaries)
        prepared = ((place, prepare(canary.judgments)) for place, canary in enumerate(canaries))
        self._prepared = {place: one for place, one in prepared if one.passages}
        self.forbidden = tuple(
            [prepare(canary.forbidden, verbatim=True) if canary.forbidden else None for canary in canaries]
        )
        self.best_grade = tuple(
            [max((judgment.grade for judgment in canary.judgments), default=0) for canary in canaries]
        )
        self.expects = np.array([canary.expects for canary in canaries], dtype=np.bool_)
        self.negative = np.array([canary.negative for canary in canaries], dtype=np.bool_)
        self.expect_empty = np.array([canary.expect_empty for canary in canaries], dtype=np.bool_)
        self.watched = np.flatnonzero(self.expects)
        """Positions of the canaries that expect something: those a detector watches."""
        self.aged = tuple([place for place, canary in enumerate(canaries) if canary.max_age_seconds is not None])
        """Positions of the canaries with a maximum age."""
        self.limited = tuple([place for place, canary in enumerate(canaries) if canary.max_latency_seconds is not None])
        """Positions of the canaries with a maximum latency."""

    def __len__(self) -> int:
        return len(self.canaries)

    def prepared(self, position: int) -> Prepared:
        """Return the judgments of a canary arranged for `match`.

        Kept where they have a text. Those of ids alone are arranged in microseconds, and of a large suite most of the
        memory would be theirs.
        """
        kept = self._prepared.get(position)
        return prepare(self.canaries[position].judgments) if kept is None else kept

    @cached_property
    def categories(self) -> dict[str, NDArray[np.intp]]:
        """Positions of the canaries by category."""
        return _groups([(str(canary.category),) for canary in self.canaries])

    @cached_property
    def documents(self) -> dict[str, NDArray[np.intp]]:
        """Positions of the canaries by expected document."""
        relevant = [[one.document for one in canary.judgments if one.grade >= 1] for canary in self.canaries]
        return _groups([sorted({name for name in names if name is not None}) for names in relevant])

    @cached_property
    def tags(self) -> dict[str, NDArray[np.intp]]:
        """Positions of the canaries by tag, and by variable such as `tenant:acme`."""
        return _groups([tuple(dict.fromkeys(canary.labels)) for canary in self.canaries])


def _groups(labels: Sequence[Sequence[str]]) -> dict[str, NDArray[np.intp]]:
    members: dict[str, list[int]] = {}
    for position, names in enumerate(labels):
        for name in names:
            members.setdefault(name, []).append(position)
    return {name: np.array(positions, dtype=np.intp) for name, positions in sorted(members.items())}


class GroupKind(StrEnum):
    """Kind of a group."""

    CATEGORY = "category"
    TAG = "tag"
    DOCUMENT = "document"


class Group(Value):
    """A group of canaries; `name` is spelled as in the suite."""

    kind: GroupKind
    name: str


def groups_of(canary: Canary) -> list[Group]:
    """Return the groups a canary is in."""
    documents = dict.fromkeys(one.document for one in canary.judgments if one.document is not None)
    return [
        *(Group(kind=GroupKind.CATEGORY, name=str(one)) for one in (canary.category,) if one is not DEFAULT_CATEGORY),
        *(Group(kind=GroupKind.TAG, name=tag) for tag in dict.fromkeys(canary.labels)),
        *(Group(kind=GroupKind.DOCUMENT, name=name) for name in documents),
    ]


_TOLD_BY: Final = ("id", "document", "text")
"""Fields of a judgment, and of the hits that it is held against."""


class UnusableSuiteError(ConflictError):
    """A stored suite is invalid in this release."""


class SuiteMember(Value):
    """A canary as a frozen suite version lists it."""

    canary_id: int
    version_id: int
    hash: str
    canary: Canary

    @property
    def key(self) -> str:
        """The key of the canary."""
        return self.canary.key


@dataclass(frozen=True, kw_only=True)
class SuiteSnapshot:
    """A suite version; positions count along `members`."""

    version_id: int
    """0 = no run has frozen it."""
    suite_id: int
    hash: str
    members: tuple[SuiteMember, ...]

    @classmethod
    def from_canaries(cls, canaries: Iterable[Canary], hash_: str = "") -> "SuiteSnapshot":
        """Return a snapshot of canaries that are not stored; their positions are their ids."""
        members = [
            SuiteMember(canary_id=position, version_id=position, hash="", canary=canary)
            for position, canary in enumerate(canaries)
        ]
        return cls(version_id=0, suite_id=0, hash=hash_, members=tuple(members))

    @cached_property
    def canaries(self) -> tuple[Canary, ...]:
        """The canaries by position."""
        return tuple([member.canary for member in self.members])

    @cached_property
    def panel(self) -> Panel:
        """The matcher of the canaries. Raises UnusableSuiteError."""
        try:
            return Panel(self.canaries)
        except ValueError as error:
            raise UnusableSuiteError(f"the suite cannot be judged: {error}") from error

    @cached_property
    def watched(self) -> Members:
        """The canaries a detector watches."""
        return watched_members(self.panel, self.version_ids)

    def prepare(self) -> None:
        """Compute what a run needs, so that it is not computed within a transaction. Raises UnusableSuiteError."""
        assert self.watched is not None  # noqa: S101 - read for its effect: cached from now on

    @cached_property
    def canary_ids(self) -> tuple[int, ...]:
        """The ids of the canaries by position."""
        return tuple([member.canary_id for member in self.members])

    @cached_property
    def version_ids(self) -> tuple[int, ...]:
        """The ids of their versions by position."""
        return tuple([member.version_id for member in self.members])

    @cached_property
    def known_versions(self) -> frozenset[int]:
        """The ids of their versions."""
        return frozenset(self.version_ids)

    @cached_property
    def positions(self) -> Mapping[int, int]:
        """Positions by canary id."""
        return {canary_id: position for position, canary_id in enumerate(self.canary_ids)}

    @cached_property
    def power(self) -> SuitePower:
        """The damage that the canaries can detect."""
        return power_of(self.canaries)

    @cached_property
    def groups(self) -> tuple[tuple[Group, ...], ...]:
        """The groups of each canary, by position."""
        shared: dict[Group, Group] = {}
        return tuple([tuple([shared.setdefault(one, one) for one in groups_of(canary)]) for canary in self.canaries])

    @cached_property
    def forbidding(self) -> tuple[int, ...]:
        """The positions of the canaries that forbid chunks."""
        return tuple([place for place, canary in enumerate(self.canaries) if canary.forbidden])

    def blind_to_leaks(self, lacking: Collection[str]) -> list[int]:
        """Return the positions of the canaries whose forbidden chunks no hit without the `lacking` fields shows."""
        return [
            place
            for place in (self.forbidding if lacking else ())
            if any(
                {name for name in _TOLD_BY if getattr(one, name) is not None}.issubset(lacking)
                for one in self.canaries[place].forbidden
            )
        ]

    @cached_property
    def floors(self) -> SuiteFloors:
        """Keys and floors of the canaries, for validating checks."""
        floors = {member.key: tuple(member.canary.floors) for member in self.members if member.canary.floors}
        return SuiteFloors.of(self.by_key.keys(), floors)

    @cached_property
    def judgment_shares(self) -> Mapping[str, float]:
        """Which share of what is expected comes from which source."""
        return judgment_shares(self.canaries)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys of the canaries by position."""
        return tuple([member.key for member in self.members])

    @cached_property
    def categories(self) -> frozenset[Category]:
        """The categories of its canaries."""
        return frozenset(member.canary.category for member in self.members)

    @cached_property
    def expecting(self) -> frozenset[Category]:
        """The categories of its canaries that expect a chunk."""
        return frozenset(member.canary.category for member in self.members if member.canary.expects)

    @cached_property
    def by_key(self) -> Mapping[str, Canary]:
        """The canaries by key."""
        return {member.key: member.canary for member in self.members}


def watched_members(panel: Panel, version_ids: Sequence[int]) -> Members:
    """Return the canaries of a suite that a detector watches, by version id, and their groups."""
    place_of = np.full(len(panel), -1, dtype=np.intp)
    place_of[panel.watched] = np.arange(len(panel.watched))
    named = {"category": panel.categories, "tag": panel.tags, "document": panel.documents}
    groups = {
        f"{kind}:{name}": places
        for kind, members in named.items()
        for name, positions in members.items()
        if len(places := place_of[positions][place_of[positions] >= 0]) > 1
    }
    return Members(keys=tuple([version_ids[position] for position in panel.watched.tolist()]), groups=groups)


def suite_hash(members: Sequence[tuple[str, str]]) -> str:
    """Return the hash of a canary list by the keys and content hashes of its members in order: 32 hex digits."""
    return blake2b(json.dumps([list(member) for member in members]).encode(), digest_size=16).hexdigest()


class RunVersions(NamedTuple):
    """The ids of the versions of a run's definitions."""

    suite: int
    check: int
    retriever: int


class RunInputs(Value):
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
    vars: Mapping[str, str] = field(default_factory=empty_mapping)
    """Values of options of the retriever for canaries that state none."""

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
        return [
            ProbeQuery(position=place, query=one.query, key=one.key, vars=self.vars_of(one), history=one.history)
            for place, one in enumerate(self.canaries)
        ]

    def vars_of(self, canary: Canary) -> Mapping[str, str]:
        """Values of options of the retriever that a canary is asked with: those of the check, and its own before."""
        return {**self.vars, **canary.vars} if canary.vars else self.vars

    @property
    def decimals(self) -> int:
        """The significant decimals of scores."""
        return decimals_of(self.retriever.score_precision)

    @property
    def vector_names(self) -> tuple[str, ...]:
        """The names of the numbers stored with the run."""
        return (*vector_names(self.yardstick, self.panel), *self.answer_measures)


def vector_names(yardstick: Yardstick, panel: Panel) -> tuple[str, ...]:
    """Return the names of a run's stored numbers: all means, and for each category what charts and rules use.

    A category's number is named `category/measure`.
    """
    names = [*OWN_MEASURES, *(mean_name(measure) for measure in yardstick.measures)]
    names += [f"{category}/{name}" for category in panel.categories for name in ("health_score", COVERAGE)]
    if Category.NEGATIVE in panel.categories:
        names.append(f"{Category.NEGATIVE}/{ANSWERED_RATIO}")
    for rule in yardstick.rules:
        name = f"{rule.category}/{rule.measure}"
        if rule.category is not None and rule.category in panel.categories and name not in names:
            names.append(name)
    return tuple(names)


_MOST_SOURCES: Final = 50


def judgment_shares(canaries: Iterable[Canary]) -> dict[str, float]:
    """Return which share of what is expected comes from which source, as a mean over the canaries that expect a chunk.

    "" = judgments without a source. Empty where no canary expects anything; of many sources the largest 50.
    """
    shares = defaultdict[str, float](float)
    expecting = 0
    for canary in canaries:
        relevant = [one for one in canary.judgments if one.grade] if canary.expects else []
        expecting += bool(relevant)
        for judgment in relevant:
            shares[judgment.source or ""] += 1 / len(relevant)
    largest = sorted(shares.items(), key=lambda one: (-one[1], one[0]))[:_MOST_SOURCES]
    return {source: round(share / expecting, 4) for source, share in largest}
