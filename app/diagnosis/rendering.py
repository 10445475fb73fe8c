"""Patches of canary files that replace judgments or add a canary, sentences about diagnoses, and quality reports.

A patch keeps comments, order and layout; where a text cannot be changed in place (an anchor, a variable, or the
judgment is not in the file any more), there is none. Reports show keys of canaries, ids and texts of chunks and names
of tags, which are hostile, literally and cut.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import yaml

from app.base.documents.fields import parse_scalar
from app.base.documents.parsing import escape_dollars
from app.base.errors import InvalidInputError, Problem
from app.base.texts import UNDEFINED, Table, counted, outcome_word, percent_text, plain, shorten, table_markdown
from app.base.values import Value
from app.catalog.documents.canary_documents import CanaryDocument, JudgmentDocument, SuiteDocument
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.diagnosis.domain.cases import Kind
from app.diagnosis.views import DiagnosisEvidence, Mark, QualityReport, QualitySection

_CONTEXT = 3


class Edit(Value):
    """A replacement of a span of characters."""

    start: int
    end: int
    written: str


def apply_edits(text: str, edits: Sequence[Edit], start: int, end: int) -> str:
    """Part of a text with its edits, in order. Raises ValueError where two overlap."""
    pieces = []
    for one in edits:
        if one.start < start:
            raise ValueError("a judgment is to be replaced twice")
        pieces += [text[start : one.start], one.written]
        start = one.end
    return "".join([*pieces, text[start:end]])


def unified_diff(name: str, text: str, edits: Sequence[Edit], pages: Sequence[Any]) -> str | None:
    """Unified diff whose context has only lines that may be shown; None = too little context to apply it."""
    lines = _Lines.of(text, pages)
    hunks: list[list[_Change]] = []
    for one in _changes(text, edits, lines):
        if any(line in lines.commented for line in range(one.first, one.end)):
            return None
        gap = range(hunks[-1][-1].end, one.first) if hunks else None
        if gap is not None and len(gap) <= 2 * _CONTEXT and all(map(lines.may_show, gap)):
            hunks[-1].append(one)
        else:
            hunks.append([one])
    written, grown = [f"--- a/{name}\n+++ b/{name}\n"], 0
    for hunk in hunks:
        first, last = hunk[0].first, hunk[-1].end
        while first > max(0, hunk[0].first - _CONTEXT) and lines.may_show(first - 1):
            first -= 1
        while last < min(len(lines.texts), hunk[-1].end + _CONTEXT) and lines.may_show(last):
            last += 1
        if first == hunk[0].first > 0 or len(lines.texts) > last == hunk[-1].end:
            return None
        more = sum(len(one.new) - (one.end - one.first) for one in hunk)
        written.append(f"@@ -{first + 1},{last - first} +{first + grown + 1},{last - first + more} @@\n")
        grown += more
        for one in hunk:
            written += [_line(" ", line) for line in lines.texts[first : one.first]]
            written += [_line("-", line) for line in lines.texts[one.first : one.end]]
            written += [_line("+", line) for line in one.new]
            first = one.end
        written += [_line(" ", line) for line in lines.texts[first:last]]
    return "".join(written)


class _Change(Value):
    """Replacement of lines, counted from 0."""

    first: int
    end: int
    """The line after the last."""
    new: Sequence[str]


def _changes(text: str, edits: Sequence[Edit], lines: "_Lines") -> Iterator[_Change]:
    """Yield changes of whole lines, in order; adjacent ones are one change."""
    together: list[Edit] = []
    for one in [*edits, None]:
        if together and (one is None or lines.at(one.start) > lines.at(together[-1].end - 1) + 1):
            first, end = lines.at(together[0].start), lines.at(together[-1].end - 1) + 1
            stop = lines.starts[end] if end < len(lines.starts) else len(text)
            new = _LINE.findall(apply_edits(text, together, lines.starts[first], stop))
            if new != lines.texts[first:end]:
                yield _Change(first=first, end=end, new=new)
            together = []
        if one is not None:
            together.append(one)


class _Lines(Value):
    """The lines of a text as git counts them, from 0, which are not all that YAML counts."""

    texts: Sequence[str]
    starts: Sequence[int]
    """The first character of each."""
    canaries: frozenset[int]
    """Lines of canaries, which readers of the suite may see."""
    commented: frozenset[int]

    @classmethod
    def of(cls, text: str, pages: Sequence[Any]) -> "_Lines":
        texts = _LINE.findall(text)
        starts = [0, *accumulate(map(len, texts))][: len(texts)]
        canaries = {
            line
            for page in multi_line_pages(pages)
            for canary in items_of(child_of(page, "canaries"))
            for line in range(_at(starts, canary.start_mark.index), _at(starts, node_end(canary) - 1) + 1)
        }
        commented = frozenset(_at(starts, place) for place in _comments(text, pages))
        return cls(texts=texts, starts=starts, canaries=frozenset(canaries), commented=commented)

    def at(self, place: int) -> int:
        """Line of a character."""
        return _at(self.starts, place)

    def may_show(self, line: int) -> bool:
        """Whether an unchanged line may be quoted."""
        is_harmless = line in self.canaries or _HARMLESS.fullmatch(self.texts[line]) is not None
        return is_harmless and line not in self.commented


def _at(starts: Sequence[int], place: int) -> int:
    return bisect_right(starts, place) - 1


def _comments(text: str, pages: Sequence[Any]) -> Iterator[int]:
    """Yield where comments may begin: at each # that is no part of a scalar."""
    scalars = sorted(_span(text, node) for node in all_nodes(pages) if isinstance(node, yaml.ScalarNode))
    starts = [start for start, _ in scalars]
    for comment in re.finditer("#", text):
        at = bisect_right(starts, comment.start()) - 1
        if at < 0 or scalars[at][1] <= comment.start():
            yield comment.start()


def _span(text: str, node: Any) -> tuple[int, int]:
    """Span of a scalar that holds no comment; one may follow a tag, an anchor or `|`."""
    start, end = node.start_mark.index, node.end_mark.index
    if text[start : start + 1] in {"!", "&"}:
        return end, end
    if node.style in {"|", ">"}:
        start = text.find("\n", start, end)
        return (start, end) if start >= 0 else (end, end)
    return start, end


_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HARMLESS = re.compile(r"\s*|\s*(?:canaries|retrievers|checks|hooks|silences):\s*|---\s*")


def _line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


_LISTS = ("expected_chunks", "expected_top_chunks")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Replacement(Value):
    """A judgment of a canary, and the judgments in its place."""

    suite: str
    key: str
    old: JudgmentDocument
    new: tuple[JudgmentDocument, ...]
    """Empty: it is removed, since its replacement is there already."""


def patch_text(name: str, text: str, replacements: Sequence[Replacement]) -> str | None:
    """Return the unified diff that replaces these judgments in a canary file; None where there is none.

    Lines outside of canaries and comments are never quoted, not even as context: they may be secret. Takes linear time.
    """
    if text.startswith("\ufeff"):  # which marks of the parser do not count
        return None
    names = {(one.suite, one.key) for one in replacements}
    try:
        pages = _pages(text)
        before = _judgments(pages, names)
        edits = sorted((_find_edit(text, before, one) for one in replacements), key=lambda edit: edit.start)
        changed = apply_edits(text, edits, 0, len(text))
        after = _judgments(_pages(changed), names)
    except (yaml.YAMLError, ValueError, LookupError, RecursionError):
        return None
    if any(judgment_name(new) not in after[one.suite, one.key] for one in replacements for new in one.new):
        return None
    return unified_diff(name, text, edits, pages)


def judgment_text(judgment: JudgmentDocument) -> str:
    """Return a judgment on one line, valid in any list of a canary file; in the short form where it has only an id."""
    lean = judgment.model_dump(mode="json", exclude_defaults=True)
    if lean.keys() == {"id"}:
        return _quoted(lean["id"])
    return "{" + ", ".join(f"{name}: {_quoted(value)}" for name, value in lean.items()) + "}"


def replace_judgments(canary: CanaryDocument, replacements: Mapping[str, Sequence[JudgmentDocument]]) -> dict[str, Any]:
    """Return the body of a canary with judgments replaced by name, see `judgment_name`.

    Where the new one is listed already, the old one is removed; the higher grade is kept.
    """
    chunks: dict[tuple[str | None, ...], JudgmentDocument] = {}
    for chunk in canary.expected_chunks:
        for one in replacements.get(judgment_name(chunk), (chunk,)):
            entry = chunks.setdefault(one.identity, one)
            if entry.grade < one.grade:
                chunks[one.identity] = one
    return {**canary.data(), "expected_chunks": [chunk.data() for chunk in chunks.values()]}


def judgment_name(judgment: JudgmentDocument) -> str:
    """Canonical JSON of a judgment: equal ones have equal names."""
    return json.dumps(judgment.data(), sort_keys=True)


def _quoted(value: Any) -> str:
    """Return a scalar as YAML within a flow collection; invisible characters are escaped."""
    if not isinstance(value, str):
        return json.dumps(value)
    escaped = escape_dollars(value)
    if _PLAIN.fullmatch(escaped) and parse_scalar(escaped) == yaml.load(escaped, Loader=_LOADER) == escaped:  # noqa: S506 - a safe one
        return escaped
    written = json.dumps(escaped, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in written)


_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@-]*")


_Judgments = Mapping[tuple[str, str], Mapping[str, tuple[Any, Any]]]
"""By suite and key of a canary: its judgments by name, each with its list and its node."""


def _pages(text: str) -> list[Any]:
    """Parse the pages of a text as nodes. Raises ValueError where a node is used twice: both places would change."""
    pages = list(yaml.compose_all(text, Loader=_LOADER))
    node_ids: set[int] = set()
    for node in all_nodes(pages):
        if id(node) in node_ids:
            raise ValueError("a node is used twice")
        node_ids.add(id(node))
    return pages


def _judgments(pages: Sequence[Any], names: Collection[tuple[str, str]]) -> _Judgments:
    """Judgments of these canaries without variables; the first of two equal ones."""
    nodes: dict[tuple[str, str], dict[str, tuple[Any, Any]]] = {name: {} for name in names}
    for page in multi_line_pages(pages):
        suite = scalar_value(child_of(page, "suite"))
        for canary in items_of(child_of(page, "canaries")):
            mine = nodes.get((suite or "", scalar_value(child_of(canary, "key")) or ""))
            for chunks in [child_of(canary, name) for name in _LISTS] if mine is not None else ():
                for node in items_of(chunks):
                    judgment = _judgment_name_of(node)
                    if judgment is not None and mine is not None:
                        mine.setdefault(judgment, (chunks, node))
    return nodes


def _find_edit(text: str, judgments: _Judgments, replacement: Replacement) -> Edit:
    """Edit of a replacement. Raises LookupError where the judgment is not in the file."""
    chunks, node = judgments[replacement.suite, replacement.key][judgment_name(replacement.old)]
    if not replacement.new:
        return _removal(text, chunks, node)
    between = ", " if chunks.flow_style else f"\n{' ' * chunks.start_mark.column}- "
    start = node.start_mark.index
    end = start + len(text[start : node_end(node)].rstrip("\r\n "))
    return Edit(start=start, end=end, written=between.join(map(judgment_text, replacement.new)))


def _removal(text: str, chunks: Any, node: Any) -> Edit:
    """Edit that removes a judgment. Raises LookupError where more would be removed."""
    place = chunks.value.index(node)
    if chunks.flow_style and len(chunks.value) > 1:
        if place:
            return Edit(start=node_end(chunks.value[place - 1]), end=node_end(node), written="")
        return Edit(start=node.start_mark.index, end=chunks.value[1].start_mark.index, written="")
    start = text.rfind("\n", 0, node.start_mark.index) + 1
    end = text.find("\n", node_end(node)) + 1 or len(text)
    alone = not text[start : node.start_mark.index].strip(" -") and not text[node_end(node) : end].strip()
    if chunks.flow_style or len(chunks.value) == 1 or not alone:
        raise LookupError("it does not stand alone on its lines")
    return Edit(start=start, end=end, written="")


def _judgment_name_of(node: Any) -> str | None:
    """Name of the judgment of a node; None = it is none, or has variables."""
    try:
        return judgment_name(JudgmentDocument.model_validate(_node_value(node)))
    except ValueError:
        return None


def _node_value(node: Any) -> Any:
    """Value of a node without variables and merges."""
    if isinstance(node, yaml.ScalarNode):
        if "${" in node.value.replace("$$", ""):
            return None  # what the variable stands for is not in the file
        return node.value.replace("$$", "$") if node.style else parse_scalar(node.value.replace("$$", "$"))
    if isinstance(node, yaml.MappingNode):
        return {scalar_value(key): _node_value(value) for key, value in node.value}
    return None


def all_nodes(pages: Sequence[Any]) -> Iterator[Any]:
    """Yield every node of pages, keys of mappings too."""
    left = [page for page in pages if page is not None]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, yaml.MappingNode):
            left += [one for pair in node.value for one in pair]
        elif isinstance(node, yaml.SequenceNode):
            left += node.value


def child_of(node: Any, name: str) -> Any:
    """Value of a key of a mapping node; None where there is none."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if scalar_value(key) == name), None)


def items_of(node: Any) -> Sequence[Any]:
    """Items of a sequence node; empty for others."""
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def scalar_value(node: Any) -> str | None:
    """Value of a scalar node; None for others."""
    return node.value if isinstance(node, yaml.ScalarNode) else None


def node_end(node: Any) -> int:
    """End of a node in the text; in block style that of its last scalar, not the next token."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    parts = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
    # Empty nodes have no place of their own; the parser may give them that of another.
    written = [one for one in parts if one.start_mark.index < one.end_mark.index]
    return max(map(node_end, written), default=int(node.start_mark.index))


def multi_line_pages(pages: Sequence[Any]) -> Iterator[Any]:
    """Yield the pages that are not in flow style: one line of those may hold secrets too."""
    return (page for page in pages if not getattr(page, "flow_style", True))


def new_canary_file(suite: str, canary: CanaryDocument) -> str:
    """Return a canary file with one canary."""
    return write_canary_file(Documents(suites=(SuiteDocument(slug=suite, canaries=(canary,)),)))


def add_canary(name: str, text: str, suite: str, canary: CanaryDocument) -> str:
    """Return a canary file with a canary behind the last one of its suite; all else stays as it is, comments too.

    It is that suite or else the only one of the file. Raises InvalidInputError where the file has no such suite, or has
    a canary of that key, or cannot be changed in place.
    """
    try:
        page = _page_of_suite(name, list(yaml.compose_all(text, Loader=_LOADER)), suite)
        listed = child_of(page, "canaries")
        for one in items_of(listed):
            if scalar_value(child_of(one, "key")) == canary.key:
                line = one.start_mark.line + 1
                problem = Problem(file=name, line=line, message=f"has a canary '{canary.key}' already; change it there")
                raise InvalidInputError([problem])
        edit = _addition(text, page, listed, canary)
        changed = apply_edits(text, [edit], 0, len(text))
        before, after = (list(yaml.load_all(one, Loader=_LOADER)) for one in (text, changed))
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        raise _unchangeable(name, suite, canary) from error
    place = next((at for at, one in enumerate(after) if one != before[at]), None)
    added = None if place is None else (after[place].get("canaries") or [None])[-1]
    if place is None or not isinstance(added, dict) or added.get("key") != canary.key:
        raise _unchangeable(name, suite, canary)
    after[place]["canaries"] = after[place]["canaries"][:-1]
    before[place]["canaries"] = before[place].get("canaries") or []
    if before != after:
        raise _unchangeable(name, suite, canary)
    return changed


def _page_of_suite(name: str, pages: Sequence[Any], suite: str) -> Any:
    of_suites = [page for page in pages if scalar_value(child_of(page, "suite")) is not None]
    named = [page for page in of_suites if scalar_value(child_of(page, "suite")) == suite]
    chosen = named[-1:] or (of_suites if len(of_suites) == 1 else [])
    if not chosen:
        raise InvalidInputError([Problem(file=name, message=f"defines no suite '{suite}' to add the canary to")])
    return chosen[0]


def _addition(text: str, page: Any, listed: Any, canary: CanaryDocument) -> Edit:
    """Edit that adds a canary behind the last one."""
    if getattr(listed, "flow_style", None) or page.flow_style:
        if not isinstance(listed, yaml.SequenceNode):
            raise LookupError("there is no list")
        at = node_end(listed.value[-1]) if listed.value else listed.start_mark.index + 1
        lean = yaml.safe_load(new_canary_file("s", canary))["canaries"][0]
        item = json.dumps(lean, ensure_ascii=False)
        return Edit(start=at, end=at, written=f", {item}" if listed.value else item)
    last = listed.value[-1] if items_of(listed) else listed or child_of(page, "suite")
    column = listed.start_mark.column if items_of(listed) else 2
    head = "" if listed is not None else "canaries:\n"
    item = new_canary_file("s", canary).partition("canaries:\n")[2]
    lines = [f"{' ' * column}{line}" if line.strip() else line for line in item.splitlines(keepends=True)]
    written = len(text[: max(node_end(last), last.start_mark.index)].rstrip())
    end = text.find("\n", written)
    if end < 0:
        return Edit(start=len(text), end=len(text), written=f"\n{head}{''.join(lines)}")
    return Edit(start=end + 1, end=end + 1, written=head + "".join(lines))


def _unchangeable(name: str, suite: str, canary: CanaryDocument) -> InvalidInputError:
    yaml_text = " ".join(new_canary_file(suite, canary).split())
    message = f"cannot be changed in place; add the canary yourself: {shorten(yaml_text, 400)}"
    return InvalidInputError([Problem(file=name, message=message)])


class QuestionRow(NamedTuple):
    """One question of a diagnosis, in words."""

    question: str
    why: str
    rank: str
    """Rank of the expected chunk."""
    returned: int | None
    """Hits of the answer; None = not stored."""


def probed(evidence: DiagnosisEvidence) -> list[QuestionRow]:
    """List the stored rankings and the questions, each with the rank of the expected chunk."""
    ranks, returned, counts = evidence.get("ranks"), evidence.get("returned"), evidence.get("asked") or {}
    if not ranks or not returned:
        return []
    before = _rank(ranks["before"], is_stored=returned["before"] is not None)
    now = _rank(ranks["run"], is_stored=returned["run"] is not None)
    rows = [
        QuestionRow("Last healthy run", "what it was like", before, returned["before"]),
        QuestionRow("In the run", "the ranking to be explained", now, returned["run"]),
    ]
    repeats = list(zip(ranks["repeats"], returned["repeats"], strict=True))
    rows += [
        QuestionRow(f"The query again, {number}", "is the fault persistent?", _rank(rank), count)
        for number, (rank, count) in enumerate(repeats, 1)
    ]
    rows += _unanswered("The query again", counts.get(Kind.REPEAT, 0) - len(repeats))
    if counts.get(Kind.DEEP):
        rank = _rank(ranks["deep"], is_stored=returned["deep"] is not None, unknown="not answered")
        why = "how far did the expected chunk fall?"
        rows.append(QuestionRow("The query, far deeper", why, rank, returned["deep"]))
    rows += [
        QuestionRow(f"The expected text as the query, {number}", "is it in the index at all?", _rank(one), None)
        for number, one in enumerate(ranks["known_items"], 1)
    ]
    rows += _unanswered("The expected text as the query", counts.get(Kind.KNOWN_ITEM, 0) - len(ranks["known_items"]))
    if counts.get(Kind.CONTROL):
        why = "is it found, as it must be if the index knows it?"
        rank = _rank(ranks["control"], missing="not brought, or not answered")
        rows.append(QuestionRow("The text of the run's first hit", why, rank, None))
    return rows


def findings(evidence: DiagnosisEvidence) -> Iterator[str]:
    """Yield the rest of the evidence in sentences without full stops."""
    if failed := evidence.get("failed"):
        yield f"not answered: {', '.join(map(_failure_text, failed))}"
    change, chunks = evidence.get("score_change"), evidence.get("scores_compared", 0)
    if change is not None:
        yield f"the scores of {counted(chunks, 'chunk')} found then and now differ by {change:.1%} in the median"
    for match in evidence.get("matches", ()):
        yield f"chunk {match['id']} holds {percent_text(match['similarity'])} of the word 3-grams of the expected text"
    for one, other, share in evidence.get("near_copies", ()):
        yield f"{one} and {other} share {percent_text(share)} of their word 3-grams"
    if "score_before" in evidence:
        yield (
            f"the expected chunk scored {evidence['score_before']:.4g} when last healthy, and the last of the top k "
            f"{evidence['score_at_k']:.4g} today"
        )


def _rank(
    rank: int | None, *, is_stored: bool = True, missing: str = "not in the answer", unknown: str = "unknown"
) -> str:
    if rank is not None:
        return f"rank {rank}"
    return missing if is_stored else unknown


def _unanswered(question: str, count: int) -> Sequence[QuestionRow]:
    why = "failed, so it proves nothing"
    return [QuestionRow(f"{question}, {counted(count, 'time')}", why, "not answered", None)][: max(count, 0)]


def _failure_text(failure: str) -> str:
    """Return a failed probe of the evidence, `refused, HTTP 503`, in words."""
    outcome, comma, status = failure.partition(", ")
    return f"{outcome_word(outcome)}{comma}{status}"


TITLES: Final[Mapping[str, str]] = {
    "suite": "Suite",
    "chunk_quality": "Chunk quality",
    "embedding_quality": "Embedding quality",
    "recall": "Coverage",
    "precision": "Score separation",
    "vocabulary": "Vocabulary",
    "chunk_boundaries": "Chunk boundaries",
    "slow_drift": "Slow drift",
}
VERDICTS: Final[Mapping[str, str]] = {Mark.GOOD: "good", Mark.REVIEW: "look at this", Mark.UNKNOWN: "unknown"}
_SHOWN = 80


def quality_markdown(report: QualityReport) -> str:
    """Return the report as GitHub-flavoured Markdown: an overview, then each section with numbers and examples."""
    canaries, chunks = report["canaries"], report["chunks"]
    evaluated = f"{counted(canaries['looked_at'], 'canary')} and {counted(chunks['looked_at'], 'chunk')} evaluated"
    overview = Table(
        title=f"Quality, {evaluated}",
        columns=("check", "run", "at"),
        rows=((plain(str(report["check"])), plain(str(report["run"])), plain(str(report["at"]))),),
        quoted=frozenset({0, 1, 2}),
    )
    tables = [overview, _overview(report), *[table for section in report["sections"] for table in _tables(section)]]
    notes = Table(title="Not evaluated", columns=("what",), rows=tuple((plain(str(note)),) for note in report["notes"]))
    return "\n\n".join([table_markdown(table) for table in (*tables, notes) if table.rows]) + "\n"


def _overview(report: QualityReport) -> Table:
    rows = tuple(
        (
            _title(section),
            VERDICTS.get(section["verdict"], UNDEFINED),
            plain(str(section["reason"])),
            plain(str(section["advice"] or UNDEFINED)),
        )
        for section in report["sections"]
    )
    return Table(title="Checklist", columns=("point", "verdict", "why", "advice"), rows=rows)


def _tables(section: QualitySection) -> Iterator[Table]:
    title = _title(section)
    numbers = tuple((plain(str(name)), _number(value)) for name, value in section["numbers"].items())
    yield Table(title=title, columns=("number", "value"), rows=numbers)
    groups = section["groups"]
    names = list(dict.fromkeys(name for numbers in groups.values() for name in numbers))
    yield Table(
        title=f"{title} by group",
        columns=("group", *[plain(str(name)) for name in names]),
        rows=tuple(
            (shorten(str(group), _SHOWN), *[_number(part.get(name)) for name in names])
            for group, part in groups.items()
        ),
        quoted=frozenset({0}),
    )
    yield Table(
        title=f"{title}: examples",
        columns=("canary", "chunk", "what", "text"),
        rows=tuple(
            (
                *[UNDEFINED if name is None else shorten(name, _SHOWN) for name in (one["canary"], one["chunk"])],
                plain(one["told"]),
                UNDEFINED if one["text"] is None else shorten(one["text"], _SHOWN),
            )
            for one in section["examples"]
        ),
        quoted=frozenset({0, 1, 3}),
    )


def _title(section: QualitySection) -> str:
    return TITLES.get(section["name"], plain(str(section["name"])))


def _number(value: float | None) -> str:
    if value is None:
        return UNDEFINED
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


ABOUT: Final[Mapping[str, str]] = {
    "suite": "How small a damage to the index the canaries of the suite would notice at all.",
    "chunk_quality": "What the retrieved chunks are like as texts, whatever was asked: empty, cut, too long, repeated.",
    "embedding_quality": "Whether the embedder puts similar texts closer together than dissimilar ones.",
    "recall": "Whether what is expected is found at all, and how deep in the ranking.",
    "precision": "Whether scores separate relevant hits from others, so that a threshold or a reranker could use them.",
    "vocabulary": "Whether queries share words with what they should find.",
    "chunk_boundaries": "Whether a passage that is expected was cut in two, so that no one chunk holds it.",
    "slow_drift": "Whether the check declines too slowly for a baseline that moves along with it.",
}
"""By the name of the point."""

TO_KNOW: Final[Mapping[str, str]] = {
    "suite": "Add canaries that expect something; three per topic are the least.",
    "chunk_quality": "Texts of hits are needed: map response.text of the retriever, if its answers hold them.",
    "embedding_quality": "Add the embedding endpoint to the retriever, so that every run checks it.",
    "recall": "Let canaries expect chunks, and the check run once.",
    "precision": "Map response.score of the retriever, and let canaries expect chunks: both kinds of hits are needed.",
    "vocabulary": "Expect passages by their text, or map response.text: the words of what is expected are needed.",
    "chunk_boundaries": "Expect passages by their text, of eight words or more, and map response.text.",
    "slow_drift": "Let the check run on at least five days.",
}
"""By the name of the point, what to do where it is unknown."""


def number_name(name: str) -> str:
    """Name of a number in words: `found@5` as found in the top 5, `p90` as upper tenth."""
    if match := re.fullmatch(r"found@(\d+)", name):
        return f"found in the top {match[1]}"
    if match := re.fullmatch(r"(relevant|other)_(p10|median|p90)", name):
        return f"{match[1]} hits, {_QUANTILES[match[2]]} score"
    return name.replace("_", " ")


_QUANTILES = {"p10": "lower tenth of the", "median": "median", "p90": "upper tenth of the"}
