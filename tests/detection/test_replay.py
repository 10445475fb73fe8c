"""`coalmine replay`: what it reads, what it refuses, and that it says what the detector said."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from app.base.db.engine import Store
from app.base.errors import InvalidInputError
from app.cli import app as cli
from app.detection.documents import TraceFile
from app.detection.domain.tracker import Runs
from tests.conftest import Databases
from tests.support.synthetic_runs import calm, noisy, together
from tests.support.watched import KEYS, carry_out, learned_world, until_open
from tests.support.world import CHECK, World

BROKEN = [2, 11, 17]


def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run the command; gives its exit code, stdout and stderr."""
    result = CliRunner().invoke(cli, ["replay", *arguments], env=environment)
    return result.exit_code, result.stdout, result.stderr


def arrays_of(key: str, base: Runs, after: Runs) -> dict[str, np.ndarray[Any, Any]]:
    """Pack a history as a trace file does; what never changes keeps a single row."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for part, runs in (("base", base), ("after", after)):
        same = bool((runs.lost == runs.lost[:1]).all())
        rows = slice(0, 1) if same else slice(None)
        found[f"{key}/{part}/lost"] = np.packbits(runs.lost[rows].astype(np.uint8), axis=1)
        found[f"{key}/{part}/ndcg"] = (runs.ndcg[rows] * 255).astype(np.uint8)
    found[f"{key}/topic"] = np.arange(base.lost.shape[1], dtype=np.int16) % 10
    return found


def meta_of(*entries: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.frombuffer(json.dumps(entries).encode(), np.uint8)


def saved(path: Path, **histories: tuple[Runs, Runs]) -> Path:
    """Write a trace file."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    entries = []
    for key, (base, after) in histories.items():
        found.update(arrays_of(key, base, after))
        entries.append({"key": key, "n": base.lost.shape[1], "base": len(base), "after": len(after), "kind": "any"})
    np.savez(path, meta=meta_of(*entries), **found)  # type: ignore[arg-type] # arrays alone
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return saved(
        tmp_path / "traces.npz",
        quiet=(noisy(50, 300, 1), noisy(50, 40, 2)),
        broken=(calm(50, 300), calm(50, 30, BROKEN)),
        healed=(calm(50, 300), together(calm(50, 10, BROKEN), calm(50, 20))),
    )


def test_json_is_a_line_for_each_key(file: Path) -> None:
    code, out, err = run(str(file), "--format", "json")
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [one["key"] for one in lines] == ["quiet", "broken", "healed"]
    quiet, broken, healed = lines
    assert quiet == {"key": "quiet", "alarms": [], "closed": [], "habits": [], "culprits": []}
    assert broken["alarms"] == healed["alarms"]
    assert len(broken["alarms"]) == 1
    assert broken["closed"] == []
    assert healed["closed"] == [12]
    assert sorted(broken["culprits"]) == sorted(healed["culprits"]) == BROKEN


def test_an_alarm_that_comes_back_alike_is_listed_as_a_habit(tmp_path: Path) -> None:
    episode = [calm(20, 5, range(3)), calm(20, 8)]
    file = saved(tmp_path / "switching.npz", switching=(calm(20, 300), together(*episode * 4)))
    told = json.loads(run(str(file), "--format", "json")[1])
    assert (len(told["alarms"]), len(told["closed"]), len(told["habits"])) == (2, 2, 2)
    assert told["habits"][0] > told["alarms"][1]


def test_json_holds_no_sign_that_a_terminal_obeys(tmp_path: Path) -> None:
    key = "\u202eevil\x9b31m\u2028"
    path = saved(tmp_path / "t.npz", **{key: (calm(5, 30), calm(5, 2))})
    code, out, _ = run(str(path), "--format", "json")
    assert code == 0
    assert out.isascii()
    assert json.loads(out)["key"] == key


def test_table_shows_the_same(file: Path) -> None:
    code, out, _ = run(str(file))
    assert code == 0
    assert "An alarm in 2 of 3 traces." in out
    assert "quiet" in out


def test_a_history_without_topics_can_be_led_through(tmp_path: Path) -> None:
    base, after = calm(20, 30), calm(20, 10, range(5))
    found = {name: array for name, array in arrays_of("a", base, after).items() if not name.endswith("topic")}
    np.savez(tmp_path / "t.npz", meta=meta_of({"key": "a", "n": 20, "base": 30, "after": 10}), **found)  # type: ignore[arg-type] # as above
    code, out, _ = run(str(tmp_path / "t.npz"), "--format", "json")
    assert code == 0
    assert json.loads(out)["alarms"] != []


def test_too_few_healthy_runs_are_the_warm_up(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.npz", a=(noisy(50, 40, 1), together(noisy(50, 5, 2, 0.0), noisy(50, 5, 3, 0.0, [4]))))
    assert json.loads(run(str(path), "--format", "json")[1])["alarms"] == [8]


def written(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> bytes:
    """Write a trace file with something changed."""
    entry: dict[str, Any] = {"key": "a", "n": 20, "base": 30, "after": 10}
    found: dict[str, Any] = dict(arrays_of("a", calm(20, 30), calm(20, 10)))
    change(entry, found)
    stream = io.BytesIO()
    np.savez(stream, **{"meta": meta_of(entry), **found})
    return stream.getvalue()


def zipped(name: str, content: bytes, packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def lying_head() -> bytes:
    """Give an array whose head promises far more than there is."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (10**15,)})
    return stream.getvalue()


def array(values: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


def head_of(told: str) -> bytes:
    """Give an array with this head."""
    head = f"{told}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head


BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "no .npz file"),
    "text": (b"hello", "no .npz file"),
    "another archive": (zipped("a.txt", b"hello"), "`meta` is missing"),
    "no array": (zipped("meta.npy", b"hello"), "`meta` is no array"),
    "a head that lies": (zipped("meta.npy", lying_head()), "its size differs from its head"),
    "meta is no JSON": (written(lambda _, found: found.update(meta=np.frombuffer(b"{", np.uint8))), "no JSON"),
    "meta is nested deeply": (zipped("meta.npy", array(np.frombuffer(b"[" * 200_000, np.uint8))), "no JSON"),
    "a head nested deeply": (
        zipped("meta.npy", head_of(f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({'-' * 9000}1,)}}")),
        "`meta` is no array",
    ),
    "a head without end": (zipped("meta.npy", head_of("{'descr': (((")), "`meta` is no array"),
    "packed by bzip2": (
        zipped("meta.npy", array(np.zeros(9, np.uint8)), zipfile.ZIP_BZIP2),
        "compressed in a way that numpy does not write",
    ),
    "packed by lzma": (
        zipped("meta.npy", array(np.zeros(9, np.uint8)), zipfile.ZIP_LZMA),
        "compressed in a way that numpy does not write",
    ),
    "too many traces": (
        written(lambda entry, found: found.update(meta=meta_of(*[entry] * 10_001))),
        "more than 10,000 traces",
    ),
    "more results than fit in memory": (
        written(lambda entry, _: entry.update(n=10_000, after=1_001)),
        "more than 10,0",
    ),
    "meta lists nothing": (written(lambda _, found: found.update(meta=meta_of())), "lists no traces"),
    "objects": (written(lambda _, found: found.update(meta=np.array([{}], dtype=object))), "Python objects"),
    "a key twice": (written(lambda entry, found: found.update(meta=meta_of(entry, entry))), "a key twice"),
    "no key": (written(lambda entry, _: entry.pop("key")), "has no key"),
    "n is no number": (written(lambda entry, _: entry.update(n="many")), "`n` is to be a whole number"),
    "n is true": (written(lambda entry, _: entry.update(n=True)), "`n` is to be a whole number"),
    "too many runs": (written(lambda entry, _: entry.update(after=10**9)), "`after` is to be a whole number"),
    "too many results": (written(lambda entry, _: entry.update(n=100_000, after=100_000)), "more than"),
    "rows are missing": (
        written(lambda _, found: found.update({"a/after/lost": np.zeros((3, 3), np.uint8)})),
        "has 3 rows; there are to be 10",
    ),
    "another width": (
        written(lambda _, found: found.update({"a/after/ndcg": np.zeros((1, 7), np.uint8)})),
        "but is uint8 of (1, 7)",
    ),
    "another kind": (written(lambda _, found: found.update({"a/after/ndcg": np.zeros((1, 20))})), "but is float64"),
    "a part is missing": (written(lambda _, found: found.pop("a/base/lost")), "`a/base/lost` is missing"),
    "far too large": (
        written(lambda _, found: found.update({"a/base/lost": np.zeros((5000, 100), np.uint8)})),
        "larger than it may be",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_files_are_refused_with_the_reason(what: str, tmp_path: Path) -> None:
    content, told = BAD[what]
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    code, out, err = run(str(path), "--format", "json")
    assert (code, out) == (2, "")
    assert err.startswith(f"{path}: ")
    assert told in err


def test_a_damaged_file_is_refused(file: Path) -> None:
    content = file.read_bytes()
    for place in range(200, len(content) - 200, len(content) // 25):
        damaged = io.BytesIO(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            found = list(TraceFile("damaged", damaged).read())
        except InvalidInputError:
            continue
        assert len(found) == 3  # nothing but what is measured was hit, or nothing at all


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    code, _, err = run(str(tmp_path / "nowhere.npz"))
    assert code == 2
    assert "nowhere.npz: No such file" in err


@pytest.mark.parametrize("arguments", [(), ("traces.npz", "--check", "docs")])
def test_either_a_file_or_a_check_is_to_be_named(arguments: tuple[str, ...]) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert "Name either a trace file or --check SLUG." in err


def test_help_teaches() -> None:
    out = run("--help")[1]
    for told in ("coalmine replay traces.npz", "--check", "KEY/base/lost", "culprits"):
        assert told in out


def test_a_checks_own_history_says_what_was_said_when_the_runs_ended(
    databases: Databases, stores: Callable[..., Store]
) -> None:
    url, clock = learned_world(databases, "sqlite")
    world = World(store=stores(url), clock=clock)
    until_open(world, KEYS[:3])
    carry_out(world, 2, KEYS[:3])
    carry_out(world, 2)
    before = world.dump()
    code, out, err = run("--check", CHECK, "--format", "json", COALMINE_DATABASE_URL=url)
    assert code == 0, err
    told = json.loads(out)
    assert told["key"] == CHECK
    assert len(told["alarms"]) == len(told["closed"]) == 1
    assert set(told["culprits"]) == set(KEYS[:3])
    assert told["warm_up"] == {"alarms": [], "closed": [], "habits": [], "culprits": []}
    code, out, err = run("--check", CHECK, COALMINE_DATABASE_URL=url)
    assert code == 0
    assert "opened" in out
    assert "closed" in out
    assert "Note" not in err
    assert world.dump() == before


def test_a_check_that_is_not_there_is_said(databases: Databases) -> None:
    code, _, err = run("--check", "nowhere", COALMINE_DATABASE_URL=databases.sqlite())
    assert code == 2
    assert "nowhere" in err
