"""What the views of all areas share."""

from typing import TypeAlias

TimeText: TypeAlias = str
"""A time as people and programs read it: RFC 3339 in UTC."""
