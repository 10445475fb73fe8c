"""The list of faults: what each is called, how often it is tried in the long form, and how."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.accounting import Account

Try = Callable[[Path, int], Account]
"""Tries a fault so often, in a folder of its own; gives what became of it."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that is tried on real processes."""

    name: str
    title: str
    """As the table shows it."""
    long: int
    """How often it is tried in the long form."""
    short: int = 1
    """How often as a test."""
    attempt: Try


def assert_harmless(fault: Fault, folder: Path) -> Account:
    """Try the short form of a fault, and hold it to have done no harm."""
    account = fault.attempt(folder, fault.short)
    assert account.wrong == {}, f"{fault.title}: {account}"
    assert account.faults == fault.short, account
    assert account.runs, account
    assert account.results, account
    return account
