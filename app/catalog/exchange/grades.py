"""Maps grades of other tools to 0 to 3: by pairs such as `1=0,4=3`, or scaled down from a range such as `0-4`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from app.base.documents.fields import one_line
from app.base.errors import InvalidInputError, Problem
from app.base.values import MAX_GRADE

_PAIR = re.compile(r"(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*=\s*([0-9])")
_SCALE = re.compile(r"0-([0-9]{1,9})")
_FORMS = "write pairs such as 1=0,2=1,3=2,4=3, or the scale they are on, such as 0-4"


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeMap:
    """Mapping of grades: by `grades`, else scaled down from `highest`, else unchanged."""

    grades: Mapping[float, int]
    highest: int | None = None

    def of(self, value: float) -> float:
        """Return the mapped grade, which may still be outside 0 to 3."""
        if value in self.grades:
            return self.grades[value]
        return value if self.highest is None else value * MAX_GRADE / self.highest


UNCHANGED = GradeMap(grades={})


def parse_grades(text: str | None) -> GradeMap:
    """Return the map of `1=0,4=3` or `0-4`; None changes nothing. Raises InvalidInputError."""
    if text is None:
        return UNCHANGED
    scale = _SCALE.fullmatch(text.strip())
    if scale is not None and int(scale[1]) > 0:
        return GradeMap(grades={}, highest=int(scale[1]))
    grades: dict[float, int] = {}
    for part in text.split(","):
        pair = _PAIR.fullmatch(part.strip())
        if pair is None:
            raise _unusable(f"'{one_line(part)}' is no pair of grades; {_FORMS}")
        if int(pair[2]) > MAX_GRADE:
            raise _unusable(f"{pair[2]} is above {MAX_GRADE}, the highest grade")
        if float(pair[1]) in grades:
            raise _unusable(f"the grade {pair[1]} is given twice")
        grades[float(pair[1])] = int(pair[2])
    return GradeMap(grades=grades)


def _unusable(message: str) -> InvalidInputError:
    return InvalidInputError([Problem(path="grades", message=message)])
