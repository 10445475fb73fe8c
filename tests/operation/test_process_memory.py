"""Freed memory goes back to the system: threads share few heaps of the C library."""

import subprocess
import sys
from pathlib import Path

import pytest

COUNTED = """
import ctypes, os, re, sys, threading
from app.base.net.transfer import return_freed_memory
said = return_freed_memory(os.environ) if "set" in sys.argv else None
meet = threading.Barrier(8)
def hold():
    kept = bytes(50_000)
    meet.wait()
threads = [threading.Thread(target=hold) for _ in range(8)]
[one.start() for one in threads]
[one.join() for one in threads]
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
print(said, len(re.findall("<heap nr", open(sys.argv[1]).read())))
"""


def heaps(tmp_path: Path, *, is_set: bool, environment: dict[str, str]) -> str:
    arguments = [f"{tmp_path}/heaps.xml", *(["set"] if is_set else [])]
    command = [sys.executable, "-c", COUNTED, *arguments]
    return subprocess.run(  # noqa: S603 - our own script
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    ("environment", "is_set", "expected"),
    [
        ({}, False, "None 9"),
        ({}, True, "True 2"),
        ({"MALLOC_ARENA_MAX": "3"}, True, "True 3"),
        ({"MALLOC_ARENA_MAX": "3", "MALLOC_TRIM_THRESHOLD_": "0"}, True, "False 3"),
    ],
)
def test_threads_share_two_heaps_unless_the_environment_says_otherwise(
    tmp_path: Path, *, environment: dict[str, str], is_set: bool, expected: str
) -> None:
    assert heaps(tmp_path, is_set=is_set, environment=environment) == expected


FREED = """
from app.base.net.transfer import return_free_pages
def resident():
    return next(int(one.split()[1]) for one in open("/proc/self/status") if one.startswith("RssAnon"))
blocks = [bytes(2_000) for _ in range(20_000)]
kept = blocks[::100]
del blocks
before = resident()
return_free_pages()
print(before - resident())
"""


def test_pages_freed_between_blocks_that_are_kept_go_back_to_the_system() -> None:
    command = [sys.executable, "-c", FREED]
    returned = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own script
    assert int(returned) > 20_000, "of 40,000 kB"
