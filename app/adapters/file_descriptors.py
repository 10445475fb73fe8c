"""File descriptors and memory of this process: how many there may be, and whether an error says that they ran out."""

import errno
import os
import resource
from typing import Final

LOCAL_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Errors of this process or machine: they say nothing about the peer."""
_WANTED = 65_536


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files as far as the hard one allows; gives how many there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return _WANTED if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return target


def are_exhausted() -> bool:
    """Whether no file can be opened just now, where a library does not say why it failed."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in LOCAL_ERRORS
    return False
