"""File descriptors and memory of this process: their limit, and whether an error means that they ran out."""

import ctypes
import errno
import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

LOCAL_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Errors of this process or machine: they say nothing about the peer."""
_TARGET = 65_536
_ARENAS: Final = ("MALLOC_ARENA_MAX", -8, 2)
_TRIM: Final = ("MALLOC_TRIM_THRESHOLD_", -1, 131_072)
"""Options of glibc's allocator: variable of the environment, number for `mallopt` (malloc.h), value."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files as far as the hard one allows; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _TARGET if hard == resource.RLIM_INFINITY else min(hard, _TARGET)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return _TARGET if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return target


def return_freed_memory(environment: Mapping[str, str]) -> bool:
    """Let glibc give freed memory back to the system, not keep it for each thread; to be called before threads begin.

    What the environment sets stays. Returns whether anything was set: other C libraries have no such options.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    taken = [mallopt(option, value) for name, option, value in (_ARENAS, _TRIM) if name not in environment]
    return any(taken)


def return_free_pages() -> None:
    """Give back the pages of the heaps on which nothing is left; glibc itself does so only at the end of a heap."""
    with suppress(AttributeError, OSError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)


def are_exhausted() -> bool:
    """Whether no file can be opened just now, where a library does not say why it failed."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in LOCAL_ERRORS
    return False
