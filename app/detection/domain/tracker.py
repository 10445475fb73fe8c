"""Tracking of a check from run to run: its detector and baseline, when to learn, and both as bytes.

Replay and service share it. The bytes are a JSON head, then plain arrays. Never pickle: stored bytes are no program.
"""

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.base.values import Severity, Value, asdict, replace
from app.detection.domain import (
    NO_HABITS,
    SIGNALS,
    UNMEASURED,
    Baseline,
    Episode,
    Fails,
    Floats,
    Habit,
    Habits,
    Key,
    Level,
    Members,
    Observation,
    Reading,
    Settings,
    State,
)
from app.detection.domain.decision import begin, step
from app.detection.domain.evidence import gathering, is_calm, nothing_recent, realign, realign_baseline
from app.detection.domain.habits import raise_or_quiet_alarm
from app.detection.domain.learning import FULL_RUNS, IDENTICAL_RUNS, learn

Past = Callable[[int], tuple[Fails, Floats]]
"""Returns the newest eligible runs, at most the given number, oldest first, with the current one last: `lost` and
`ndcg` as in Observation, (runs, n), columns as the members. -1 and NaN where a canary was not measured, or had another
version. A run is eligible if no alarm was open, it is not part of one (its `since`), and no alert of the check
fired."""

RELEARN_RUNS: Final = 100
"""Eligible runs after which a baseline is learned again; a young one as soon as it can have twice as many runs."""

_AT_REST: Final = 0.001
"""No baseline is learned while the evidence exceeds this share of an alarm, or a calm canary fails repeatedly: a
beginning fault is not normal, and two failures in a row would teach that failures last."""
_STREAK: Final = range(2, 20)
"""A longer streak that raised no alarm counts as normal."""


class Follower(Value):
    """State and baseline of a check between two runs."""

    state: State
    baseline: Baseline | None = None
    """None = it is warming up."""
    habits: Habits = NO_HABITS


def follow(members: Members) -> Follower:
    """Return a follower without baseline and alarm, for a new check or after an accepted baseline."""
    return Follower(state=begin(members))


def rename(follower: Follower, former: Mapping[Key, Key]) -> Follower:
    """Return a follower that knows canaries by new keys: `former` has the old ones, each with its new one."""
    if not former:
        return follower
    baseline, habits = follower.baseline, follower.habits
    if baseline is not None:
        baseline = replace(baseline, keys=_renamed(baseline.keys, former))
    known = tuple(replace(one, answers=_renamed_answers(one.answers, former)) for one in habits.known)
    episode = habits.episode
    if episode is not None:
        episode = replace(episode, answers=_renamed_answers(episode.answers, former))
    return replace(
        follower,
        state=replace(follower.state, keys=_renamed(follower.state.keys, former)),
        baseline=baseline,
        habits=replace(habits, known=known, episode=episode),
    )


def keys_of(follower: Follower) -> set[Key]:
    """Return the keys of all canaries that a follower knows anything of."""
    habits, episode = follower.habits, follower.habits.episode
    known = [one.answers for one in (*habits.known, *(() if episode is None else (episode,)))]
    return {*follower.state.keys, *(() if follower.baseline is None else follower.baseline.keys), *chain(*known)}


def _renamed(keys: tuple[Key, ...], former: Mapping[Key, Key]) -> tuple[Key, ...]:
    return tuple([former.get(key, key) for key in keys])


def _renamed_answers(
    answers: Mapping[Key, tuple[int, ...]], former: Mapping[Key, Key]
) -> Mapping[Key, tuple[int, ...]]:
    return {former.get(key, key): said for key, said in answers.items()}


def observe(
    follower: Follower, members: Members, observation: Observation, settings: Settings
) -> tuple[Follower, Reading]:
    """Process one measured run; realigns first where the members are not those of the last run.

    An alarm that is one more episode of a habit is none to people: its reading has the habit, and is not `open`.

    While an alarm is open (`follower.state.open`) the baseline must have its `failures`. Raises ValueError else.
    """
    state, baseline = follower.state, follower.baseline
    if state.keys != members.keys or state.groups != tuple(members.groups):
        state = realign(state, members)
    if baseline is not None and baseline.keys != members.keys:
        baseline = realign_baseline(baseline, members.keys)
    after, reading = step(state, baseline, members, observation, settings)
    habits, reading = raise_or_quiet_alarm(follower.habits, after, baseline, observation, reading, settings)
    if after.closings > state.closings and not _came_back(follower.habits, habits):
        after = replace(after, closings=state.closings, named=state.named)
    return Follower(state=after, baseline=baseline, habits=habits), reading


def _came_back(before: Habits, after: Habits) -> bool:
    """Whether the alarm that ended was like an earlier one: only those that come back make canaries restless."""
    return after.known != before.known and after.known[-1].times > 1


def learn_when_due(follower: Follower, past: Past, settings: Settings, *, eligible: bool) -> Follower:
    """Learn a baseline if one is due, after `observe`; then the follower has another `baseline` than before.

    `eligible`: whether no alert of the check is firing; a run during or at the end of an alarm is never eligible.
    `past` is called only if a baseline is learned. With `settings.relearn` off only the first one is.
    """
    state = follower.state
    if not eligible or state.open or state.good:
        return replace(follower, state=replace(state, identical=0))
    follower = replace(follower, state=_well(state, warming_up=follower.baseline is None))
    if _is_brewing(follower, settings):
        return follower
    if follower.baseline is None:
        return _first(follower, past)
    if not settings.relearn:
        return follower
    return _again(follower, follower.baseline, past)


def learned(follower: Follower, baseline: Baseline) -> Follower:
    """Return the follower with a newly learned baseline: the accounts stay, the warm-up ends.

    Only that of several canaries begins anew: its bets are paid by the rates of one baseline.
    With a baseline of full length, no canary counts as restless any more. Raises ValueError where it has other
    canaries.
    """
    state = follower.state
    if baseline.keys != state.keys:
        raise ValueError("The baseline is about other canaries than the state.")
    full = baseline.runs >= FULL_RUNS
    warmed = replace(
        state,
        last=np.where(state.last == UNMEASURED, baseline.last, state.last),
        lately=np.full(len(state.keys), np.nan, np.float32),
        counts=np.empty(0, np.int32),
        newly_failed=0,
        identical=0,
        eligible=0,
        closings=0 if full else state.closings,
        named=np.zeros(len(state.keys), np.int8) if full else state.named,
        longest=0 if full else state.longest,
        recent=np.zeros_like(state.recent),
    )
    return replace(follower, state=warmed, baseline=baseline)


def _is_brewing(follower: Follower, settings: Settings) -> bool:
    """Whether an alarm may be about to open."""
    state, baseline, most = follower.state, follower.baseline, _AT_REST / settings.alpha
    failing = (state.streak >= _STREAK.start) & (state.streak < _STREAK.stop)
    if (is_calm(state.passes, state.misses) & failing).any():
        return True
    return baseline is not None and state.evidence > most and gathering(state, baseline) > most


def _well(state: State, *, warming_up: bool) -> State:
    """State after a healthy run, with its counters."""
    well = replace(state, eligible=state.eligible + 1, fresh=state.fresh + 1)
    if not warming_up:
        return well
    counts = np.append(state.counts, np.int32(state.failing))[-FULL_RUNS:]
    return replace(well, counts=counts, newly_failed=state.newly_failed + state.newly)


def _first(follower: Follower, past: Past) -> Follower:
    """Learn the first baseline, from `IDENTICAL_RUNS` identical runs or else from `FULL_RUNS`."""
    state = follower.state
    if state.identical >= IDENTICAL_RUNS:
        lost, ndcg = past(min(state.identical, FULL_RUNS))
        if len(lost) >= IDENTICAL_RUNS and (baseline := learn(state.keys, lost, ndcg)).deterministic:
            return learned(follower, baseline)
        follower = replace(follower, state=replace(state, identical=len(lost)))
    if state.eligible >= FULL_RUNS:
        lost, ndcg = past(FULL_RUNS)
        if len(lost) >= FULL_RUNS:
            return learned(follower, learn(state.keys, lost, ndcg))
        follower = replace(follower, state=replace(follower.state, eligible=len(lost)))
    return follower


def _again(follower: Follower, baseline: Baseline, past: Past) -> Follower:
    """Learn again after `RELEARN_RUNS` eligible runs, sooner while the baseline is young or canaries are new to it.

    The first `IDENTICAL_RUNS` have to be identical; two and four times as many, of the next baselines, do not: a
    retriever that began to flicker without an alarm is described better by all of them than by those that did not.
    """
    state = follower.state
    settled = IDENTICAL_RUNS if baseline.deterministic else RELEARN_RUNS
    newcomers = settled <= state.fresh <= state.eligible and not baseline.known.all()
    if state.eligible < min(RELEARN_RUNS, baseline.runs) and not newcomers:
        return follower
    lost, ndcg = past(min(baseline.runs + state.eligible, FULL_RUNS))
    if len(lost) < min(baseline.runs, FULL_RUNS):
        return replace(follower, state=replace(state, eligible=0))
    return learned(follower, learn(state.keys, lost, ndcg))


class Runs(Value):
    """Runs, oldest first, as in Observation: (runs, n)."""

    lost: Fails
    ndcg: Floats

    def __len__(self) -> int:
        return len(self.lost)


def replay(
    members: Members, healthy: Runs, after: Runs, settings: Settings | None = None
) -> Iterator[tuple[Follower, Reading]]:
    """Yield the follower and reading after each run of `after`.

    A baseline is learned from the newest `FULL_RUNS` of the `healthy` runs, or `IDENTICAL_RUNS` or more identical ones,
    without alarms; fewer are the warm-up. From then on all is as in a live check without other firing alerts.
    """
    settings = settings or Settings()
    past = _Past(members=members, settings=settings)
    follower = past.begun(healthy)
    for lost, ndcg in zip(after.lost, after.ndcg, strict=True):
        follower, reading = past.go_on(follower, Observation(lost=lost, ndcg=ndcg))
        yield follower, reading


class _Past:
    """The runs that baselines may be learned from."""

    def __init__(self, *, members: Members, settings: Settings) -> None:
        self.members, self.settings = members, settings
        self.eligible: list[Observation] = []
        self.in_alarm = False

    def begun(self, healthy: Runs) -> Follower:
        follower = follow(self.members)
        newest = Runs(lost=healthy.lost[-FULL_RUNS:], ndcg=healthy.ndcg[-FULL_RUNS:])
        baseline = learn(self.members.keys, newest.lost, newest.ndcg) if len(newest) else None
        enough = baseline is not None and len(newest) >= (IDENTICAL_RUNS if baseline.deterministic else FULL_RUNS)
        if baseline is not None and enough:
            self.eligible = [Observation(lost=a, ndcg=b) for a, b in zip(newest.lost, newest.ndcg, strict=True)]
            return learned(follower, baseline)
        for lost, ndcg in zip(healthy.lost, healthy.ndcg, strict=True):
            follower, _ = self.go_on(follower, Observation(lost=lost, ndcg=ndcg))
        return follower

    def go_on(self, follower: Follower, observation: Observation) -> tuple[Follower, Reading]:
        follower, reading = observe(follower, self.members, observation, self.settings)
        if reading.is_of_alarm and not self.in_alarm:
            del self.eligible[len(self.eligible) - min(reading.since - 1, len(self.eligible)) :]
        if not reading.is_of_alarm:
            self.eligible = [*self.eligible[-FULL_RUNS + 1 :], observation]
        self.in_alarm = follower.state.open
        return learn_when_due(follower, self.newest, self.settings, eligible=True), reading

    def newest(self, limit: int) -> tuple[Fails, Floats]:
        runs = self.eligible[-limit:]
        return np.stack([one.lost for one in runs]), np.stack([one.ndcg for one in runs])


_VERSION: Final = 1
_HABITS_VERSION: Final = 1
_MOST_HABITS: Final = 1 << 20
"""Bytes they unpack to at most; 8 of 64 canaries with 4 answers each need a twentieth of it."""
_ADDED: Final = {"recent": "several.recent"}
"""Names of arrays that earlier releases did not have: with a dot in it, they pass over it."""
_BESIDE: Final = frozenset({"total", "beside"})
"""Fields of habits and episodes that earlier releases did not have."""
_TYPES: Final = frozenset({"<f4", "|i1", "|b1", "<i4", "<i8"})
_LEVELS: Final = frozenset({"canaries", "grouped", "fleet"})
_MOST_HEAD: Final = 1 << 26
_MOST_CANARIES: Final = 1_000_000
_BYTES_EACH: Final = 256
"""Of a canary or group, in all arrays but the failures; what unpacks to more is damage."""
_BYTES_BESIDES: Final = 1 << 16

Arrays = Mapping[str, NDArray[Any]]


def pack_state(state: State) -> bytes:
    """Write a state; `unpack_state` gives an equal one."""
    plain: dict[str, object] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in asdict(state).items():
        if isinstance(value, Level):
            arrays.update({f"{name}.{part}": one for part, one in asdict(value).items()})
        elif isinstance(value, np.ndarray):
            arrays[_ADDED.get(name, name)] = value
        else:
            plain[name] = value
    _put_keys(plain, arrays, state.keys)
    return _packed("state", plain, arrays)


def unpack_state(data: bytes) -> State:
    """Read a state. Raises ValueError where the bytes are none, or of another version."""
    plain, arrays = _unpacked("state", data)
    try:
        values: dict[str, Any] = {name: array for name, array in arrays.items() if "." not in name}
        for name in _LEVELS:
            values[name] = Level(**{part: arrays[f"{name}.{part}"] for part in Level.__struct_fields__})
        severity = plain["severity"]
        values |= plain
        values["keys"] = _keys(plain, arrays)
        # Earlier releases had none: the account of several canaries begins with the next run.
        values["recent"] = arrays.get(_ADDED["recent"], nothing_recent(len(SIGNALS), len(values["keys"])))
        values["groups"] = tuple(plain["groups"])
        values["severity"] = None if severity is None else Severity(severity)
        return State(**values)
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"These bytes are no state of a detector: {error}") from error


def pack_habits(habits: Habits) -> bytes:
    """Write habits; `unpack_habits` gives equal ones. Empty where there is nothing to remember."""
    if habits == NO_HABITS:
        return b""
    episode = habits.episode
    body = {
        "version": _HABITS_VERSION,
        "known": [{**_shallow(one), "answers": _pairs(one.answers)} for one in habits.known],
        "episode": None if episode is None else {**_shallow(episode), "answers": _pairs(episode.answers)},
        "index": habits.version,
        # Beside them: earlier releases pass over it, and refuse fields they do not know.
        "added": [[one.total, *one.beside] for one in habits.known],
        "beside": None if episode is None else episode.beside,
    }
    return zlib.compress(json.dumps(body).encode(), 1)


def unpack_habits(data: bytes) -> Habits:
    """Read habits. Raises ValueError where the bytes are damaged.

    Those that a later release wrote in a way of its own are forgotten: then the next alarm is raised, which is safe.
    """
    if not data:
        return NO_HABITS
    try:
        opened = zlib.decompressobj()
        body = json.loads(opened.decompress(data, _MOST_HABITS))
        if body["version"] != _HABITS_VERSION:
            return NO_HABITS
        known, episode = body["known"], body["episode"]
        # An earlier release kept the longest of those that alarmed, and no other lengths.
        added = body.get("added") or [(one["times"] * one["longest"], 0, 0) for one in known]
        return Habits(
            known=tuple(
                Habit(**{**one, "answers": _answers(one["answers"])}, total=total, beside=(lost, worse))
                for one, (total, lost, worse) in zip(known, added, strict=True)
            ),
            episode=None
            if episode is None
            else Episode(
                **{**episode, "answers": _answers(episode["answers"])}, beside=tuple(body.get("beside") or (0, 0))
            ),
            version=body["index"],
        )
    except _DAMAGE as error:
        raise ValueError(f"These bytes are no habits of a detector: {error}") from error


def _shallow(value: Habit | Episode) -> dict[str, Any]:
    return {name: one for name, one in asdict(value).items() if name not in _BESIDE}


def _pairs(answers: Mapping[Key, Sequence[int]]) -> list[list[object]]:
    return [[key, *some] for key, some in answers.items()]


def _answers(pairs: Sequence[Sequence[Any]]) -> dict[Key, tuple[int, ...]]:
    return {key: tuple(some) for key, *some in pairs}


def pack_baseline(baseline: Baseline) -> tuple[bytes, bytes]:
    """Write a baseline: what each run needs, and the failures, needed only while an alarm is open.

    Raises ValueError where it was read without them.
    """
    if baseline.failures is None:
        raise ValueError("The baseline was read without its failures, so it is not to be written.")
    plain: dict[str, object] = {
        "runs": baseline.runs,
        "deterministic": baseline.deterministic,
        "usual": list(baseline.usual),
    }
    arrays = {name: getattr(baseline, name) for name in ("known", "rates", "floors", "last")}
    _put_keys(plain, arrays, baseline.keys)
    shape = {"shape": list(baseline.failures.shape)}
    bits = {"bits": np.packbits(baseline.failures, axis=None).view(np.int8)}
    return _packed("baseline", plain, arrays), _packed("failures", shape, bits)


def unpack_baseline(body: bytes, failures: bytes | None = None) -> Baseline:
    """Read a baseline, with its failures if they are given. Raises ValueError as `unpack_state` does."""
    plain, arrays = _unpacked("baseline", body)
    try:
        lost, worse = plain["usual"]
        values: dict[str, Any] = {**arrays, **plain}
        values["keys"] = _keys(plain, arrays)
        values["usual"] = (int(lost), int(worse))
        read = None if failures is None else _failures(failures, (2, values["runs"], len(values["keys"])))
        return Baseline(**values, failures=read)
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"These bytes are no baseline: {error}") from error


def _failures(data: bytes, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Read failures. Raises ValueError where their shape is not that of the baseline."""
    count = math.prod(shape)
    plain, arrays = _unpacked("failures", data, most=math.ceil(count / 8))
    bits = arrays["bits"].reshape(-1).view(np.uint8)
    if plain["shape"] != list(shape) or len(bits) != math.ceil(count / 8):
        raise ValueError("These bytes are no failures of this baseline.")
    return np.unpackbits(bits, count=count).reshape(shape).astype(np.bool_)


def _put_keys(plain: dict[str, object], arrays: dict[str, NDArray[Any]], keys: tuple[Key, ...]) -> None:
    """Numbers, the usual keys, are kept as an array."""
    if {*map(type, keys)} <= {int}:
        arrays["keys"] = np.array(keys, np.int64)
        plain.pop("keys", None)
    else:
        plain["keys"] = list(keys)


def _keys(plain: Mapping[str, Any], arrays: Arrays) -> tuple[Key, ...]:
    return tuple(plain["keys"]) if "keys" in plain else tuple(arrays["keys"].tolist())


def _packed(kind: str, plain: Mapping[str, object], arrays: Arrays) -> bytes:
    """Write the length of the head, the head and the arrays, all little-endian, compressed together."""
    ordered = {name: array.astype(array.dtype.newbyteorder("<"), order="C") for name, array in arrays.items()}
    shapes = {name: [array.dtype.str, list(array.shape)] for name, array in ordered.items()}
    head = json.dumps({"kind": kind, "version": _VERSION, "plain": plain, "arrays": shapes}).encode()
    parts = [len(head).to_bytes(4, "little"), head, *map(_sorted_bytes, ordered.values())]
    packer = zlib.compressobj(1, strategy=zlib.Z_RLE)
    return packer.compress(b"".join(parts)) + packer.flush()


def _sorted_bytes(array: NDArray[Any]) -> bytes:
    """Write the first byte of every number, then the second ...: alike ones stand in runs, which pack fast."""
    return np.ascontiguousarray(array.reshape(-1, 1).view(np.uint8).T).tobytes()


def _number_bytes(data: bytes, size: int) -> bytes:
    """Undo `_sorted_bytes`; `size` is that of a number."""
    return np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(size, -1).T).tobytes()


def _unpacked(kind: str, data: bytes, most: int | None = None) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `_packed` wrote. Raises ValueError where it did not.

    Arrays are unpacked once their sizes are known: together no more than `most` bytes, or what so many canaries need.
    """
    try:
        opened = zlib.decompressobj()
        length = int.from_bytes(opened.decompress(data, 4), "little")
        if not 0 < length <= _MOST_HEAD:
            raise ValueError("there is no head, or one that is too long")
        head = json.loads(opened.decompress(opened.unconsumed_tail, length))
        if head["kind"] != kind or head["version"] != _VERSION:
            raise ValueError(f"they are none of version {_VERSION}")
        plain = dict(head["plain"])
        sizes = {name: _size(dtype, shape) for name, (dtype, shape) in head["arrays"].items()}
        total = sum(sizes.values())
        if total > (_most_bytes(plain, head["arrays"]) if most is None else most):
            raise ValueError("the arrays are larger than they may be")
        whole = opened.decompress(opened.unconsumed_tail, total + 1)
        if not opened.eof or len(whole) != total:
            raise ValueError("they are longer or shorter than they say")
        arrays, place = {}, 0
        for name, (dtype, shape) in head["arrays"].items():
            numbers = _number_bytes(whole[place : place + sizes[name]], np.dtype(dtype).itemsize)
            arrays[name] = np.frombuffer(numbers, dtype).reshape(shape)
            place += sizes[name]
    except _DAMAGE as error:
        raise ValueError(f"These bytes are no {kind}: {error}") from error
    return plain, arrays


_DAMAGE: Final = (zlib.error, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def _size(dtype: str, shape: Sequence[int]) -> int:
    """Say how many bytes an array has."""
    if dtype not in _TYPES or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("an array is of no kind that is written")
    return math.prod(shape) * np.dtype(dtype).itemsize


def _most_bytes(plain: Mapping[str, Any], shapes: Mapping[str, Any]) -> int:
    """Say how many bytes the arrays of a state or baseline may have, by its canaries and groups."""
    canaries = len(plain["keys"]) if "keys" in plain else math.prod(shapes["keys"][1])
    if canaries > _MOST_CANARIES:
        raise ValueError("there are more canaries than there may be")
    return _BYTES_EACH * (canaries + len(plain.get("groups", ()))) + _BYTES_BESIDES
