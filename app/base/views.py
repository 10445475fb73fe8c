"""Types that the views of all areas share.

Views hold `list` and `dict`, not the abstract types: pydantic writes those by calls into Python, which takes 45 ms for
500 results instead of 10.
"""

from typing import TypeAlias

TimeText: TypeAlias = str
"""A time as RFC 3339 in UTC."""
