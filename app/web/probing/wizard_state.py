"""The sheet of the mapping wizard: what its form holds, and what reading an answer by it comes to.

What it knows of an answer it reads here, asking nobody; asking, saving and showing are the page's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.domain.counts import counted
from app.domain.errors import InvalidInputError, NotFoundError, Problem
from app.domain.probing.answer_outline import MAPPED_FIELDS, mapping_changes, parse_place
from app.domain.probing.retrievers import ScorerKind
from app.domain.probing.views import MappingSuggestion
from app.formats.catalog.canary_documents import CanaryDocument
from app.formats.catalog.documents import RetrieverDocument
from app.formats.probing.presets import PRESETS
from app.formats.validation_messages import parse_document
from app.services.catalog.references import FILE
from app.services.probing import mapping_preview
from app.services.probing.trials import LOWER_MINIMUM, ReadAnswer, suggestion_views
from app.store.catalog.definitions import Definition
from app.store.engine import Store
from app.web.document_forms import form_fields
from app.web.forms import Form, parse_number
from app.web.probing import retriever_fields

DEFAULT_K = "10"
LABELS: Mapping[str, tuple[str, str]] = {
    "hits": ("List of hits", "empty where the fields are lists side by side"),
    "id": ("Id", "what tells one chunk from another"),
    "score": ("Score", "how well the retriever thinks it fits"),
    "text": ("Text", "the passage; @ where hits are texts themselves"),
    "document": ("Document", "where it comes from"),
    "updated": ("Last changed", "for canaries with a max_age"),
    "index_version": ("Index version", "of the whole answer; or header:x-index-version"),
}
SCALES: Mapping[str, str] = {
    "similarity": "similarities, 0 to 1",
    "cosine": "cosines, -1 to 1",
    "distance": "distances, 0 is best",
    "logit": "logits, any number",
    "unbounded": "unbounded, such as BM25",
}
SCORES_ARE: Final = "“Scores are”"
ON_NO_SCALE: Final = "not on a scale: judgments alone tell"
_LOWER_MINIMUM: Final = (
    f"choose another scale under {SCORES_ARE}, or “{ON_NO_SCALE}”, or lower the canaries' "
    f"“{form_fields(CanaryDocument)['min_relevance_score'].label}”"
)
_OUTSIDE: Mapping[Any, str] = {ScorerKind.EMBEDDING: "the embedder", ScorerKind.RERANK: "the reranker"}
"""Who measures relevance where it is not read off the retriever's scores."""
_READING = {"slug": "draft", "preset": "generic", "url": "http://draft.invalid/"}
"""What stands around a mapping while answers are read by it: reading asks nobody."""


@dataclass(slots=True, kw_only=True)
class WizardState:
    """The form on its way through one request: what it was sent with, and what came of it."""

    definition: Definition | None
    typed: Form
    problems: list[Problem] = field(default_factory=list)
    asked: Mapping[str, Any] | None = None
    """What came of asking the retriever, where that was wished."""
    answer: Any = None
    """The answer, parsed; None where there is none yet."""
    unreadable: bool = False
    preview: Mapping[str, Any] | None = None
    suggestions: list[MappingSuggestion] = field(default_factory=list)
    told: str = ""
    """What the last click did."""
    changed: str = ""
    """Which field it was about."""

    @property
    def stored(self) -> Mapping[str, Any] | None:
        """The body of the retriever there is; None for a new one."""
        return self.definition.body if self.definition is not None else None

    @property
    def of_file(self) -> bool:
        """Whether a file owns it, so that only its mapping can be tried."""
        return self.definition is not None and self.definition.managed_by == FILE

    def fill(self, texts: Mapping[str, str]) -> None:
        """Put something into fields."""
        self.typed = replace(self.typed, texts={**self.typed.texts, **texts})

    @property
    def paths(self) -> dict[str, str]:
        """The paths as they are typed."""
        return {name: self.typed.stripped(f"response.{name}") for name in MAPPED_FIELDS}


def with_form_labels(remark: str) -> str:
    """Write a remark on an answer with the labels of forms, where it has the keys of canary files."""
    return remark.replace(LOWER_MINIMUM, _LOWER_MINIMUM)


def read_answer(read: ReadAnswer, store: Store, sheet: WizardState) -> None:
    """Parse the answer, do what was pointed at, and say what the mapping reads of it."""
    text = sheet.typed.get("answer")
    if not text.strip():
        return
    sheet.answer = mapping_preview.parse_answer(text)
    sheet.unreadable = sheet.answer is None
    if sheet.unreadable:
        return
    draft = parse_document(RetrieverDocument, {**_READING, "response": {"text": "@"}})
    sheet.suggestions = suggestion_views(draft, sheet.answer, sheet.typed.stripped("query"))
    _point(sheet)
    _use(sheet)
    try:
        _preview(read, store, sheet)
        if _guesses_scale(sheet):
            _preview(read, store, sheet)
    except InvalidInputError as error:
        known = {problem.path for problem in sheet.problems}
        sheet.problems += [problem for problem in error.problems if problem.path not in known]


def _preview(read: ReadAnswer, store: Store, sheet: WizardState) -> None:
    document = _reading(sheet)
    if document is not None:
        query, canary = sheet.typed.stripped("query"), selected_canary(store, sheet)
        answer, outside = sheet.typed.get("answer"), _OUTSIDE.get(_scorer(sheet).get("kind"))
        sheet.preview = mapping_preview.preview(
            read,
            document,
            answer,
            query,
            k=read_k(sheet),
            canary=canary,
            relevance_from=outside,
            decided=sheet.typed.get("scorer") != retriever_fields.NO_CHOICE,
        )
        sheet.preview["remarks"] = [with_form_labels(one) for one in sheet.preview["remarks"]]


def _guesses_scale(sheet: WizardState) -> bool:
    """Choose the scale that scores which were just pointed at look like, or none; gives whether anything was chosen."""
    pointed_at_score = sheet.typed.get("point") and sheet.changed == "score"
    if not pointed_at_score or sheet.preview is None or sheet.typed.get("scorer") != retriever_fields.NO_CHOICE:
        return False
    scale, fits = mapping_preview.suggested_scale(sheet.paths["score"], sheet.preview)
    if not scale:
        return False
    sheet.fill({"scorer": scale if fits else str(ScorerKind.JUDGED)})
    unfit = f", on which good answers may be less relevant than most canaries ask, so {SCORES_ARE} is “{ON_NO_SCALE}”"
    sheet.told = f"{sheet.told.rstrip('.')}; the scores look like {SCALES[scale]}{'' if fits else unfit}."
    return True


def _reading(sheet: WizardState) -> RetrieverDocument | None:
    """Give a retriever that reads by the typed mapping; None where nothing tells hits apart yet."""
    response = retriever_fields.response_body(sheet.typed)
    if not (response["id"] or response["text"]):
        return None
    scorer = _scorer(sheet)
    if scorer.get("kind") in _OUTSIDE:
        scorer = {"kind": str(ScorerKind.JUDGED)}  # relevance is measured outside, which reading does not ask
    precision = (sheet.stored or {}).get("score_precision")
    more = {} if precision is None else {"score_precision": precision}
    return parse_document(RetrieverDocument, {**_READING, **more, "response": response, "scorer": scorer})


def _scorer(sheet: WizardState) -> Mapping[str, Any]:
    """Give the scorer that would be in force: the chosen one, else what the preset says where scores are mapped."""
    chosen = retriever_fields.scorer_body(sheet.typed, sheet.stored)
    if chosen is not None:
        return chosen
    preset = PRESETS.get(sheet.typed.get("preset"))
    return preset.scorer if preset is not None and sheet.paths["score"] else {}


def _point(sheet: WizardState) -> None:
    """Write the path of what was clicked into the field that was chosen, and choose the next."""
    place, name = sheet.typed.get("point"), sheet.typed.get("pointing")
    if not place:
        return
    if name not in MAPPED_FIELDS:
        sheet.told = "Choose first what you are pointing at."
        return
    try:
        changes = mapping_changes(name, parse_place(place), sheet.answer, sheet.paths)
    except ValueError as error:
        sheet.told = f"Not taken as {LABELS[name][0]}: {error}."
        return
    sheet.fill({f"response.{field}": path for field, path in changes.items()})
    told = ", ".join(f"{LABELS[field][0]}: {path}" for field, path in changes.items())
    sheet.fill({"pointing": _next_pointing(name, sheet)})
    sheet.told, sheet.changed = f"{told}.", name


def _next_pointing(name: str, sheet: WizardState) -> str:
    """Return the first field behind one that has no path yet, which is pointed at next; that one where all have."""
    paths = sheet.paths
    return next((field for field in MAPPED_FIELDS[MAPPED_FIELDS.index(name) + 1 :] if not paths[field]), name)


def _use(sheet: WizardState) -> None:
    """Take over a suggested mapping."""
    wanted = sheet.typed.get("use")
    if not wanted:
        return
    places = [str(place) for place in range(len(sheet.suggestions))]
    if wanted not in places:
        sheet.told = "That suggestion is no longer there."
        return
    chosen = sheet.suggestions[places.index(wanted)]
    kept = sheet.typed.get("response.index_version")
    sheet.fill({f"response.{name}": chosen["response"].get(name) or "" for name in MAPPED_FIELDS})
    before = sheet.typed.get("scorer")
    unscaled = str(ScorerKind.JUDGED) if chosen["response"].get("score") else retriever_fields.NO_CHOICE
    scale = (chosen["scorer"] or {}).get("scale") or (before if before in _OUTSIDE else unscaled)
    sheet.fill({"response.index_version": kept, "scorer": scale, "pointing": _next_pointing("hits", sheet)})
    sheet.told = f"The mapping that reads {counted(chosen['hits'], 'hit')} was taken over."


def read_k(sheet: WizardState) -> int:
    """Give how many hits are wanted. Raises InvalidInputError."""
    k = parse_number(sheet.typed.get("k", DEFAULT_K) or DEFAULT_K)
    if not isinstance(k, int) or not 1 <= k <= 1000:  # noqa: PLR2004 - as when trying
        raise InvalidInputError([Problem(path="k", message="must be a whole number from 1 to 1,000")])
    return k


def selected_canary(store: Store, sheet: WizardState) -> CanaryDocument | None:
    """Give the chosen canary; None where none is. Raises InvalidInputError where it is gone."""
    suite, _, key = sheet.typed.get("canary").partition("/")
    if not key:
        return None
    try:
        return mapping_preview.load_canary(store, suite, key)
    except NotFoundError as error:
        raise InvalidInputError([Problem(path="canary", message=str(error))]) from None
