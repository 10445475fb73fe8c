"""State of the retriever wizard: form, parsed response, suggestions and preview. Nothing is sent from here."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.base.counts import counted
from app.base.db.engine import Store
from app.base.documents.validation_messages import parse_document
from app.base.errors import InvalidInputError, NotFoundError, Problem
from app.base.web.document_forms import form_fields
from app.base.web.forms import Form, parse_number
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.documents import RetrieverDocument
from app.catalog.service.references import FILE
from app.catalog.store.definitions import Definition
from app.retrievers.domain.answer_outline import MAPPED_FIELDS, WHOLE_FIELDS, mapping_changes, parse_place
from app.retrievers.domain.retrievers import ScorerKind
from app.retrievers.domain.views import MappingPreview, MappingSuggestion, TrialView
from app.retrievers.pages import retriever_fields
from app.retrievers.pages.retriever_fields import MAPPING_FIELDS
from app.retrievers.presets import PRESETS
from app.retrievers.service import mapping_preview
from app.retrievers.service.trials import LOWER_MINIMUM, ReadAnswer, suggestion_views

DEFAULT_K = "10"
SCALES: Mapping[str, str] = {
    "similarity": "similarities, 0 to 1",
    "cosine": "cosines, -1 to 1",
    "distance": "distances, 0 is best",
    "logit": "logits, any number",
    "unbounded": "unbounded, such as BM25",
}
SCORES_ARE: Final = "“Scores are”"
ON_NO_SCALE: Final = "not on a scale: judgments alone tell"
_LOWER_MINIMUM_HERE: Final = (
    f"choose another scale under {SCORES_ARE}, or “{ON_NO_SCALE}”, or lower the canaries' "
    f"“{form_fields(CanaryDocument)['min_relevance_score'].label}”"
)
_EXTERNAL: Mapping[Any, str] = {ScorerKind.EMBEDDING: "the embedder", ScorerKind.RERANK: "the reranker"}
"""Service that measures relevance, where the retriever's scores do not."""
_DRAFT = {"slug": "draft", "preset": "generic", "url": "http://draft.invalid/"}
"""The rest of a retriever while responses are read by a mapping."""


@dataclass(slots=True, kw_only=True)
class WizardState:
    """The form on its way through one request: what it was sent with, and the results."""

    definition: Definition | None
    form: Form
    problems: list[Problem] = field(default_factory=list)
    trial: TrialView | None = None
    """Result of the test request, if one was sent."""
    answer: Any = None
    """The parsed response; None before there is one."""
    is_unreadable: bool = False
    preview: MappingPreview | None = None
    suggestions: list[MappingSuggestion] = field(default_factory=list)
    message: str = ""
    changed_field: str = ""

    @property
    def stored(self) -> Mapping[str, Any] | None:
        """The body of the stored retriever; None for a new one."""
        return self.definition.body if self.definition is not None else None

    @property
    def is_file_managed(self) -> bool:
        """Whether a canary file owns it, so that its mapping can only be tried."""
        return self.definition is not None and self.definition.managed_by == FILE

    def fill(self, texts: Mapping[str, str]) -> None:
        """Replace texts of fields."""
        self.form = replace(self.form, texts={**self.form.texts, **texts})

    @property
    def paths(self) -> dict[str, str]:
        """The typed paths by field."""
        return {name: self.form.stripped(f"response.{name}") for name in MAPPED_FIELDS}


def with_form_labels(remark: str) -> str:
    """Remark with the labels of forms, where it has the keys of canary files."""
    return remark.replace(LOWER_MINIMUM, _LOWER_MINIMUM_HERE)


def update_state(read: ReadAnswer, store: Store, state: WizardState) -> None:
    """Parse the response, apply the click or the suggestion, and preview the hits."""
    text = state.form.get("answer")
    if not text.strip():
        return
    state.answer = mapping_preview.parse_answer(text)
    state.is_unreadable = state.answer is None
    if state.is_unreadable:
        return
    draft = parse_document(RetrieverDocument, {**_DRAFT, "response": {"text": "@"}})
    state.suggestions = suggestion_views(draft, state.answer, state.form.stripped("query"))
    _apply_click(state)
    _apply_suggestion(state)
    try:
        _read_preview(read, store, state)
        if _choose_scale(state):
            _read_preview(read, store, state)
    except InvalidInputError as error:
        reported = {problem.path for problem in state.problems}
        state.problems += [problem for problem in error.problems if problem.path not in reported]


def _read_preview(read: ReadAnswer, store: Store, state: WizardState) -> None:
    document = _draft_retriever(state)
    if document is not None:
        query, canary = state.form.stripped("query"), selected_canary(store, state)
        answer, outside = state.form.get("answer"), _EXTERNAL.get(_effective_scorer(state).get("kind"))
        state.preview = mapping_preview.preview(
            read,
            document,
            answer,
            query,
            k=read_k(state),
            canary=canary,
            relevance_from=outside,
            decided=state.form.get("scorer") != retriever_fields.NO_CHOICE,
        )
        state.preview["remarks"] = [with_form_labels(one) for one in state.preview["remarks"]]


def _choose_scale(state: WizardState) -> bool:
    """Choose the likely scale of scores that were just clicked; returns whether one was chosen."""
    pointed_at_score = state.form.get("point") and state.changed_field == "score"
    if not pointed_at_score or state.preview is None or state.form.get("scorer") != retriever_fields.NO_CHOICE:
        return False
    scale, fits = mapping_preview.suggested_scale(state.paths["score"], state.preview["hits"])
    if not scale:
        return False
    state.fill({"scorer": scale if fits else str(ScorerKind.JUDGED)})
    unfit = f", on which good answers may be less relevant than most canaries ask, so {SCORES_ARE} is “{ON_NO_SCALE}”"
    state.message = f"{state.message.rstrip('.')}; the scores look like {SCALES[scale]}{'' if fits else unfit}."
    return True


def _draft_retriever(state: WizardState) -> RetrieverDocument | None:
    """Return a retriever that reads by the typed mapping; None while neither id nor text is mapped."""
    response = retriever_fields.response_body(state.form)
    if not (response["id"] or response["text"]):
        return None
    scorer = _effective_scorer(state)
    if scorer.get("kind") in _EXTERNAL:
        scorer = {"kind": str(ScorerKind.JUDGED)}  # relevance is measured outside, which reading does not ask
    precision = (state.stored or {}).get("score_precision")
    more = {} if precision is None else {"score_precision": precision}
    return parse_document(RetrieverDocument, {**_DRAFT, **more, "response": response, "scorer": scorer})


def _effective_scorer(state: WizardState) -> Mapping[str, Any]:
    """Scorer that saving would put in force: the chosen one, else the preset's where scores are mapped."""
    chosen = retriever_fields.scorer_body(state.form, state.stored)
    if chosen is not None:
        return chosen
    preset = PRESETS.get(state.form.get("preset"))
    return preset.scorer if preset is not None and state.paths["score"] else {}


def _apply_click(state: WizardState) -> None:
    """Write the path of the clicked value into the chosen field, and choose the next field."""
    place, name = state.form.get("point"), state.form.get("pointing")
    if not place:
        return
    if name not in MAPPED_FIELDS:
        state.message = "Choose a field first."
        return
    try:
        changes = mapping_changes(name, parse_place(place), state.answer, state.paths)
    except ValueError as error:
        state.message = f"Not taken as {MAPPING_FIELDS[name].label}: {error}."
        return
    state.fill({f"response.{field}": path for field, path in changes.items()})
    message = ", ".join(f"{MAPPING_FIELDS[field].label}: {path}" for field, path in changes.items())
    state.fill({"pointing": _next_field(name, state)})
    state.message, state.changed_field = f"{message}.", name


def _next_field(name: str, state: WizardState) -> str:
    """First field after this one that has no path yet; this one where all have."""
    paths = state.paths
    return next((field for field in MAPPED_FIELDS[MAPPED_FIELDS.index(name) + 1 :] if not paths[field]), name)


def _apply_suggestion(state: WizardState) -> None:
    number = state.form.get("use")
    if not number:
        return
    places = [str(place) for place in range(len(state.suggestions))]
    if number not in places:
        state.message = "That suggestion is no longer there."
        return
    chosen = state.suggestions[places.index(number)]
    kept = {name: text for one in WHOLE_FIELDS if (text := state.form.get(name := f"response.{one}"))}
    state.fill({f"response.{name}": chosen["response"].get(name) or "" for name in MAPPED_FIELDS})
    before = state.form.get("scorer")
    unscaled = str(ScorerKind.JUDGED) if chosen["response"].get("score") else retriever_fields.NO_CHOICE
    scorer = chosen["scorer"]
    scale = str(scorer["scale"]) if scorer is not None else before if before in _EXTERNAL else unscaled
    state.fill({**kept, "scorer": scale, "pointing": _next_field("hits", state)})
    state.message = f"The mapping that reads {counted(chosen['hits'], 'hit')} was taken over."


def read_k(state: WizardState) -> int:
    """Return how many hits to request. Raises InvalidInputError."""
    k = parse_number(state.form.get("k", DEFAULT_K) or DEFAULT_K)
    if not isinstance(k, int) or not 1 <= k <= 1000:  # noqa: PLR2004 - as when trying
        raise InvalidInputError([Problem(path="k", message="must be a whole number from 1 to 1,000")])
    return k


def selected_canary(store: Store, state: WizardState) -> CanaryDocument | None:
    """Return the selected canary; None without one. Raises InvalidInputError where it is gone."""
    suite, _, key = state.form.get("canary").partition("/")
    if not key:
        return None
    try:
        return mapping_preview.load_canary(store, suite, key)
    except NotFoundError as error:
        raise InvalidInputError([Problem(path="canary", message=str(error))]) from None
