"""Texts that people read: numbers, durations, counts and names; and untrusted texts made harmless to show.

Lines, tables, JSON without its vectors, Markdown. Below: the size of a JSON text, counted before anything is built of
it, and JSON read within such limits or cut off; files decoded.
"""

import json
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.base.values import (
    CORRECTED,
    FAITHFUL,
    CorrectedInterval,
    CorrectedRateView,
    Outcome,
    Percentile,
    Value,
    judged_name,
)

_DECIMALS = 3
_MOST_DECIMALS = 9
_TYPED_DECIMALS = 6
_MOST_DIGITS = 12
_LONGEST_NAME = 60
_LEAST_P = 0.001
_UNITS = (("days", 86_400, 2), ("hours", 3_600, 2), ("min", 60, 2), ("s", 1, 1), ("ms", 0.001, 0))
"""(unit, its seconds, the least amount it is used for)."""


MEASURE_LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {"health_score": "first-hit relevance", "duplicate_ratio": "duplicate ids", "utilisation": "lexical grounding"}
)
"""What measures are called that their names call otherwise: the mean relevance of first hits is no share of what is
well, near copies with other ids are no duplicates, and what a model used nobody sees."""


def measure_words(name: str) -> str:
    """Return the name of a measure or a category as words: `simple_factual` as simple factual."""
    return MEASURE_LABELS.get(name) or name.replace("_", " ")


def ratio_text(value: float, other: float | None = None) -> str:
    """Format a share or a score: `0.874`, `1.000`; with as many more digits as it takes to differ from `other`."""
    return _distinct_text(_fixed_text, value, other, _DECIMALS)


def found_text(coverage: float | None, measured: int | None, undefined: int | None) -> str | None:
    """Format coverage as a count: `65 of 87` of the measured canaries that expect something; None = not measured."""
    if coverage is None or measured is None or undefined is None:
        return None
    return f"{round(coverage * (measured - undefined)):,} of {measured - undefined:,}"


def bound_text(value: float) -> str:
    """Format a bound as it was typed: `0.9`, `1`, `0.375`; a computed one, of many digits, as a ratio."""
    return _trimmed_text(value, _TYPED_DECIMALS) if round(value, _TYPED_DECIMALS) == value else ratio_text(value)


def corrected_text(value: float, beside: CorrectedInterval, other: float | None = None) -> str:
    """Format a corrected rate with its interval and the judge's own: `0.745 (0.612 to 0.861; the judge: 0.873)`."""
    return f"{ratio_text(value, other)} ({beside_text(beside)})"


def beside_text(beside: CorrectedInterval) -> str:
    """Format what stands beside a corrected rate: `0.612 to 0.861; the judge: 0.873`, and `; 84 of 140 rated`."""
    low, high, judge = map(ratio_text, (beside["low"], beside["high"], beside["judge_rate"]))
    return "; ".join([f"{low} to {high}", f"the judge: {judge}", *_conditions(beside)])


def _conditions(beside: CorrectedInterval) -> list[str]:
    rated = rated_text(beside["answers"], beside.get("unrated", 0))
    return [one for one in (rated, *stale_labels(beside)) if one]


def stale_labels(beside: CorrectedInterval) -> list[str]:
    """Say of what else than the judge or the answers of a run its labels are: it may err otherwise about these."""
    other = [f"labelled on answers of retriever {beside['labelled_of']}"] if "labelled_of" in beside else []
    if "labelled_before_edit_of" in beside:
        other = [f"labelled before retriever {beside['labelled_before_edit_of']} was edited"]
    return [*([JUDGE_EDITED] if beside.get("edited_since") else []), *other]


JUDGE_EDITED: Final = "labelled before the judge was edited"
"""Said of what labels tell of a judge that asks another endpoint since: it may err otherwise now."""


def rated_text(answers: int, unrated: int) -> str:
    """Say of how many answers a number of a judge is, `84 of 140 rated`; empty where it rated all of them."""
    return f"{answers:,} of {answers + unrated:,} rated" if unrated else ""


def own_text(value: float, rate: CorrectedRateView, other: float | None = None) -> str:
    """Format what a judge says where labels correct only its rate of full shares.

    `0.563 (mean share by the judge; corrected rate 0.474, 0.220 to 0.649)`.
    """
    return f"{ratio_text(value, other)} ({MEAN_SHARE}; {rate_text(rate)})"


def judged_text(value: float, rate: CorrectedRateView | None, rated: str, other: float | None = None) -> str:
    """Format what a judge says beside the `rate` of people, or of a part of the answers, `0.852 (84 of 140 rated)`.

    Or another number, of which there is neither.
    """
    return f"{ratio_text(value, other)}{rated and f' ({rated})'}" if rate is None else own_text(value, rate, other)


def bad_answers_text(reasons: Sequence[str], *, healthy: bool, unjudged: str = "") -> str:
    """Say what is bad of the answers of a run, `healthy` by what was retrieved or not; empty where nothing is.

    `unjudged`: which of them have no verdict, a clause; what is not judged is not known to be good.
    """
    bad = f"its answers are bad: {'; '.join(reasons)}" if reasons else ""
    told = [one for one in (bad, unjudged) if one]
    return "; ".join(["healthy by what was retrieved", *told] if healthy and told else told)


def unjudged_words(unjudged: str) -> str:
    """Return `not judged`, or `not all judged` where a clause on answers that are not judged tells of some of them."""
    return "not all judged" if _PART.search(unjudged) else "not judged"


_PART: Final = re.compile(r"(?<![\d,])(?!([\d,]+) of \1 )[\d,]+ of [\d,]+ answers? (did|was|were)")
"""Finds that these are some of them, `33 of 140 answers did not come`."""
MEAN_SHARE: Final = "mean share by the judge"
"""Name of what a judge says in shares of claims, where its rate of full shares or that of people is near."""


def judge_alone(measure: str | None) -> str:
    """Name of what a judge says that no labels correct, of yes or no or in shares; empty where none says it."""
    said = None if measure in CORRECTED else judged_name(measure)
    return "" if said is None else "the judge alone" if said == FAITHFUL else MEAN_SHARE


def judge_mark(measure: str | None, *, uncalibrated: bool, corrected: bool = False) -> str:
    """Return what stands behind the name of what a judge says: ` (uncalibrated)`, ` (the judge alone)` or nothing."""
    said = "uncalibrated" if uncalibrated else "" if corrected else judge_alone(measure)
    return f" ({said})" if said else ""


def rate_text(rate: CorrectedRateView) -> str:
    """Format a corrected rate that stands beside another number: `corrected rate 0.474, 0.220 to 0.649`.

    Where the judge did not rate all answers, both numbers are of the others: `...; 84 of 140 rated`.
    """
    value, low, high = map(ratio_text, (rate["value"], rate["low"], rate["high"]))
    return "; ".join([f"corrected rate {value}, {low} to {high}", *_conditions(rate)])


def corrected_label(measure: str, *, uncalibrated: bool = False) -> str:
    """Name of a corrected rate in a sentence: `faithful, corrected by people's labels`, and `(uncalibrated)` if so."""
    mark = " (uncalibrated)" if uncalibrated else ""
    return f"{judged_name(measure) or measure}, corrected by people's labels{mark}"


def seconds_text(value: float, other: float | None = None) -> str:
    """Format a latency: `61 ms`, `1.31 s`; with as many digits as it takes to differ from `other`."""
    return _distinct_text(_seconds_text, value, other, 0)


def age_text(seconds: float, other: float | None = None) -> str:
    """Format an age: `800 ms`, `36 hours`, `3.2 days`; with as many digits as it takes to differ from `other`."""
    return _distinct_text(_age_text, seconds, other, 2, _MOST_DIGITS)


def percent_text(share: float) -> str:
    """Format a share: `87 %`; one above 0 is never written as 0 %."""
    text = f"{100 * share:.0f} %"
    return "under 1 %" if text == "0 %" and share > 0 else text


def p_text(p: float) -> str:
    """Format a p value: `0.031`, `under 0.001`."""
    return ratio_text(p) if p >= _LEAST_P else f"under {_LEAST_P}"


def change_text(value: float) -> str:
    """Format a difference with its sign: `+0.030`, `-0.140`, `0.000`."""
    text = ratio_text(value)
    return f"+{text}" if value > 0 and float(text) else text


def duration_text(span: timedelta) -> str:
    """Format a duration: `40 s`, `42 min`, `3 h 5 min`, `2 d 4 h`; at least one second."""
    seconds = max(int(span.total_seconds()), 1)
    if seconds < _MINUTE:
        return f"{seconds} s"
    minutes = (seconds + _MINUTE // 2) // _MINUTE
    days, hours = divmod(minutes // 60, 24)
    parts = [(days, "d"), (hours, "h"), (minutes % 60, "min")]
    return " ".join([f"{count} {unit}" for count, unit in parts if count][:2])


def span_text(seconds: float) -> str:
    """Format a length of time as people say it, in the largest unit that it is whole in: `1 minute`, `24 hours`."""
    for unit, size, least in (("day", 86_400, 2), ("hour", 3_600, 1), ("minute", 60, 1)):
        if seconds >= least * size and seconds % size == 0:
            return counted(int(seconds // size), unit)
    return "1 second" if seconds == 1 else f"{seconds:g} seconds"


def short_name(name: str, longest: int = _LONGEST_NAME) -> str:
    """Return a name on one line, cut to `longest` characters."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in name).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}\u2026"


def _distinct_text(
    write: Callable[[float, int], str], value: float, other: float | None, least: int, most: int = _MOST_DECIMALS
) -> str:
    """Format a number with at least `least` digits, and with as many more as it takes to differ from another."""
    for digits in range(least, most):
        text = write(value, digits)
        if other is None or value == other or text != write(other, digits):
            return text
    return write(value, most)


def _fixed_text(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


def _trimmed_text(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    if decimals:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _age_text(seconds: float, digits: int) -> str:
    unit, amount = next((unit, seconds / size) for unit, size, least in _UNITS if seconds >= least * size)
    return f"{amount:.{max(digits, len(str(int(amount))))}g} {unit}"


def _seconds_text(value: float, decimals: int) -> str:
    if value < 1:
        return f"{_trimmed_text(value * 1000, decimals)} ms"
    return f"{_trimmed_text(value, decimals + 2)} s"


LATENCY_NAMES: Final[Mapping[Percentile, str]] = {
    Percentile.P50: "median latency",
    Percentile.P95: "p95 latency",
    Percentile.MAX: "longest latency",
}
_MINUTE = 60


def named_text(names: Sequence[str], most: int = 5) -> str:
    """First of many names, and how many there are beside: `a, b and 1,203 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def variables_text(variables: Mapping[str, str]) -> str:
    """Return as whom somebody asks: `tenant acme, language de`."""
    return ", ".join(f"{name} {value}" for name, value in variables.items())


def listed(parts: Sequence[str]) -> str:
    """Return parts in a row: one, one and two, or one, two and three."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def first_clause(sentence: str) -> str:
    """Return a sentence up to its first semicolon, see `clauses`."""
    return clauses(sentence)[0]


def clauses(sentence: str) -> list[str]:
    """Cut a sentence at its semicolons; those within brackets, as in a label, do not count."""
    depth, start, found = 0, 0, []
    for place, sign in enumerate(sentence):
        depth += (sign == "(") - (sign == ")")
        if not depth and sentence.startswith("; ", place):
            found.append(sentence[start:place])
            start = place + 2
    return [*found, sentence[start:]]


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 canary`, `2 canaries`, `1,200 runs`; the noun is given in the singular."""
    return f"{count:,} {plural(count, noun)}"


def plural(count: int, noun: str) -> str:
    """Return the form of a noun after a count: `run` after 1, else `runs`."""
    if count == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"


def outcome_word(outcome: str) -> str:
    """Name of an outcome on pages: `error response`, `timeout`."""
    return "error response" if outcome == Outcome.REFUSED else outcome.replace("_", " ")


_QUOTE = ord('"')
_COMMA, _OPEN, _CLOSE = 1, 2, 3
_KINDS = np.zeros(256, dtype=np.uint8)
_KINDS[ord(",")] = _COMMA
_KINDS[[ord("["), ord("{")]] = _OPEN
_KINDS[[ord("]"), ord("}")]] = _CLOSE


class JsonLimits(Value):
    """How much a JSON text may hold."""

    depth: int
    """Lists and objects within each other."""
    values: int
    """Texts, numbers and the like, lists and objects, all together."""
    entries: int
    """Those of one list or object."""


REQUEST_LIMITS: Final = JsonLimits(depth=40, values=1_000_000, entries=100_000)
"""Of a request, and of JSON within its texts; the documents need 25 levels."""
ANSWER_LIMITS: Final = JsonLimits(depth=1_000, values=1_000_000, entries=1_000_000)
"""Of an answer of another service, however large a body it may have; Python's parsers go no deeper either."""


def excess_of(text: bytes, limits: JsonLimits) -> str | None:
    """Say what a JSON text holds too much of; None = it is within the limits.

    Nothing is missed that a parser would build up to where the text stops being JSON. Time and memory are linear in
    the bytes, whatever they are.
    """
    if len(text) <= min(limits.values, limits.entries) and text.count(b"[") + text.count(b"{") <= limits.depth:
        return None  # a value takes a byte, a level a bracket
    kinds = _structure(text)
    # A value is the whole text, or follows an opening bracket or a comma.
    if 1 + np.count_nonzero(kinds != _CLOSE) > limits.values:
        return f"holds more than {limits.values:,} values; send it in parts"
    depths = _depths(kinds)
    if depths.max(initial=0) > limits.depth:
        return f"is nested more than {limits.depth:,} levels deep"
    longest = _longest(kinds, depths) if limits.entries < limits.values else 0
    if longest > limits.entries:
        return f"has a list or object of {longest:,} entries, the limit is {limits.entries:,}; send it in parts"
    return None


def excess_of_answer(body: bytes) -> str | None:
    """Say what the answer of another service holds too much of, whatever size is permitted; None = nothing."""
    excess = excess_of(body, ANSWER_LIMITS)
    return None if excess is None else f"the answer {excess.partition(';')[0]}"


def _structure(text: bytes) -> NDArray[np.uint8]:
    """Give the brackets and commas outside of strings, in order."""
    plain = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")  # JSON has backslashes within strings only
    characters = np.frombuffer(plain, dtype=np.uint8)
    kinds = _KINDS[characters]
    within = np.cumsum(characters == _QUOTE, dtype=np.uint8)  # wraps at 256, and its last bit stays right
    within &= 1
    kinds[within == 1] = 0
    structural: NDArray[np.uint8] = kinds[kinds != 0]
    return structural


def _depths(kinds: NDArray[np.uint8]) -> NDArray[np.int32]:
    steps = np.zeros(len(kinds), dtype=np.int32)
    steps[kinds == _OPEN] = 1
    steps[kinds == _CLOSE] = -1
    return np.cumsum(steps, dtype=np.int32)


def _longest(kinds: NDArray[np.uint8], depths: NDArray[np.int32]) -> int:
    """Count the entries of the longest container: the commas of its own level, and one."""
    longest = 0
    for level in range(1, int(depths.max(initial=0)) + 1):
        here = depths == level
        commas = np.cumsum(here & (kinds == _COMMA), dtype=np.int32)
        begun = np.flatnonzero(here & (kinds == _OPEN))
        counted = np.diff(commas[begun], append=commas[-1:])
        longest = max(longest, int(counted.max(initial=0)) + 1)
    return longest


UNDEFINED = "\N{EN DASH}"


def table_markdown(table: "Table") -> str:
    """Return a table as a section of Markdown, without a line break at its end."""
    note = ["", f"{prose(table.note[:1].upper() + table.note[1:])}."] if table.note else []
    return "\n".join([f"## {table.title}", "", *_table_lines(table), *note])


class Table(Value):
    """Texts to draw as a table. Free of control characters, but otherwise as hostile as their source."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    quoted: frozenset[int] = frozenset()
    """Columns that hold texts of others, to be shown literally; the rest are numbers and words of ours."""
    note: str = ""
    """Sentence of ours that explains the numbers, without a full stop."""


def number(value: float | None) -> str:
    """Write a number with three decimals, and None as undefined."""
    return UNDEFINED if value is None else f"{value:.3f}"


def plain(text: str) -> str:
    """Return the text on one line without control, formatting (such as right-to-left marks) or unpaired characters."""
    spaced = "".join(" " if character.isspace() else character for character in text)
    printable = "".join(character for character in spaced if unicodedata.category(character) not in _UNSHOWN)
    return " ".join(printable.split())


def shorten(text: str, limit: int) -> str:
    """Return `plain` text of at most `limit` characters."""
    line = plain(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


_UNSHOWN = {"Cc", "Cf", "Cs"}


def _table_lines(table: Table) -> list[str]:
    lines = [
        [prose(column) for column in table.columns],
        ["---"] * len(table.columns),
        *(
            [code(cell) if position in table.quoted else prose(cell) for position, cell in enumerate(row)]
            for row in table.rows
        ),
    ]
    return [f"| {' | '.join(line)} |" for line in lines]


def prose(text: str) -> str:
    """Escape everything Markdown could read as markup, except within words.

    Round brackets and exclamation marks are markup only beside square brackets, which are escaped; `R@5` mentions
    nobody.
    """
    return re.sub(r"([\\`*{}\[\]#+|<>~&]|(?<!\w)_|_(?!\w)|@(?!\d)|(?<!\w)@)", r"\\\1", plain(text))


def code(text: str) -> str:
    """Show a text literally, in a code span: no markup, mention or link is made of it. Pipes are escaped for tables."""
    line = plain(text)
    if line in {"", UNDEFINED}:
        return UNDEFINED
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    padding = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{padding}{line}{padding}{fence}".replace("|", "\\|")


_NUMBER = r"-?\d++(?:\.\d++)?+(?:[eE][+-]?\d++)?+"
_TOKENS = re.compile(
    rf'"(?:[^"\\]++|\\.)*+"?|\[\s*+(?P<numbers>{_NUMBER}(?:\s*+,\s*+{_NUMBER})*+)\s*+(?P<end>\]|[,\s.eE+\-\d]*+\Z)',
    re.DOTALL,
)
"""Texts, which are left alone, and lists of numbers. Possessive throughout: whoever answers chooses the text."""
_LONGEST_LIST = 16
"""Longer lists of numbers are vectors."""


def shown_json(body: str) -> str:
    """Lay out a body for people: whole JSON with line breaks, its vectors as `[0.12, -0.03, ... 384 numbers]`.

    A vector that was cut off at the end has `more than` so many.
    """
    try:
        text = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = body
    return _TOKENS.sub(_shortened, text)


def _shortened(found: re.Match[str]) -> str:
    numbers = found["numbers"]
    count = 0 if numbers is None else numbers.count(",") + 1
    if count <= _LONGEST_LIST:
        return found[0]
    first, second, _ = numbers.split(",", 2)
    text = f"{'' if found['end'] == ']' else 'more than '}{count:,} numbers"
    return f"[{float(first):.3g}, {float(second):.3g}, ... {text}]"


_CLOSING = {"{": "}", "[": "]"}
_LEVELS = 200

_Open: TypeAlias = "tuple[str, _Open] | None"
"""What closes what is open, from the inside out: linked, so that a place is remembered without copying the stack."""


def parse_cut(text: str) -> Any:  # noqa: C901 - a scanner, one branch for each kind of character
    """Parse the beginning of a JSON document up to the last whole object of a list; None where nothing came whole.

    Where there is no such object, up to the last whole value: objects then lack their last keys. What is nested more
    than 200 levels deep counts as cut off there.
    """
    open_: _Open = None
    levels = 0
    whole: tuple[int, _Open] | None = None
    open_list: tuple[int, _Open] | None = None
    quoted = escaped = False
    for place, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "{[":
            if levels == _LEVELS:
                break  # what came whole before is still of use
            open_, levels = (_CLOSING[character], open_), levels + 1
        elif character in "}]" and open_:
            open_, levels = open_[1], levels - 1
            whole = (place + 1, open_)
            if character == "}" and open_ and open_[0] == "]":
                open_list = whole
        elif character == "," and open_:
            whole = (place, open_)
    if whole is None:
        return None
    end, left = open_list or whole
    closing = ""
    while left:
        closing, left = closing + left[0], left[1]
    try:
        return json.loads(text[:end] + closing)
    except (ValueError, RecursionError):
        return None


def parse_json_text(
    text: str, limits: JsonLimits | None = REQUEST_LIMITS, *, parse_constant: Callable[[str], Any] | None = None
) -> Any:
    """Return the JSON of a text. Raises ValueError where it is none, or holds more than the limits permit."""
    excess = None if limits is None else excess_of(text.encode(errors="replace"), limits)
    if excess is not None:
        raise ValueError(excess)
    try:
        return json.loads(text, parse_constant=parse_constant)
    except RecursionError:
        raise ValueError("is nested too deep") from None


UTF_16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
"""The first two bytes of UTF-16 text."""


def not_utf_8(name: str) -> str:
    """Say that a file is not UTF-8 text, and the command that converts one of Windows."""
    command = f"iconv -f WINDOWS-1252 -t UTF-8 {shlex.quote(name)} > utf-8.txt"
    return f"is not UTF-8 text; in Excel save it as CSV UTF-8, or convert it: {command}"


def decode_text(raw: bytes) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 with its mark. Raises UnicodeDecodeError."""
    return raw.decode("utf-16" if raw[:2] in UTF_16_MARKS else "utf-8-sig")


class Source(Value):
    """A named text that can be read line by line, repeatedly."""

    name: str
    lines: Callable[[], Iterable[str]]
