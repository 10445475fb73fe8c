"""Which ranking each canary of a check had, run by run, without reading all of its history at once."""

from app.base.db.engine import Store
from app.records.store import rescored_runs, results
from app.records.store.rescored_runs import BegunState


class Walk:
    """Knows the ranking each canary of a check has while walking through its runs, a page of states at a time."""

    def __init__(self, store: Store, check_id: int, *, page: int) -> None:
        self._store = store
        self._page = page
        self._check_id = check_id
        self._has: dict[int, int] = {}
        self._ahead: list[BegunState] = []
        self._after: int | None = None
        """The last state read; None before the first run."""
        self._read_until = 0
        """The run up to which all states are read: else each read for more would go through those of other checks."""

    def ranking_of(self, canary_id: int) -> int | None:
        """Give the ranking a canary has at this run, or had when it was last measured."""
        return self._has.get(canary_id)

    def look_ahead(self, first: int, last: int) -> set[int]:
        """Read the states up to the run `last`, and give the rankings that will be met until then from `first` on."""
        met: set[int] = set()
        if self._after is None:
            with self._store.read() as connection:
                begun = rescored_runs.states_in_force(connection, self._check_id, first)
            self._has = {state.canary_id: state.ranking_id for state in begun}
            self._after = max((state.id for state in begun), default=0)
            met.update(self._has.values())
        while self._read_until < last and not (self._ahead and self._ahead[-1].first_run > last):
            with self._store.read() as connection:
                newest = results.newest_ended(connection, self._check_id)
                page = rescored_runs.states_begun(connection, self._check_id, after=self._after, limit=self._page)
            if len(page) < self._page:
                self._read_until = newest.id if newest is not None else last
            self._after = page[-1].id if page else self._after
            self._ahead += page
        return met | {state.ranking_id for state in self._ahead if state.first_run <= last}

    def to(self, run_id: int) -> set[int]:
        """Go on to a run; gives the canaries that have had another ranking on the way."""
        passed = 0
        changed: set[int] = set()
        for state in self._ahead:
            if state.first_run > run_id:
                break
            self._has[state.canary_id] = state.ranking_id
            changed.add(state.canary_id)
            passed += 1
        del self._ahead[:passed]
        return changed
