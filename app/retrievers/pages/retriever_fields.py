"""Fields of the retriever wizard: texts of a stored retriever, and the retriever of a submitted form.

Label, hint, control and secrecy stand at the fields of the documents (`app.base.documents.fields`). Beside them the
form has the variables of a preset, fields for each kind of authentication, and a choice of what the scores are. Secrets
are never filled in; what the form has no field for stays as it is stored.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any, Final, cast

from typing_extensions import TypedDict

from app.base.documents.fields import Control
from app.base.documents.http_fields import AUTH_KINDS, KEY_IN_ONE_PLACE
from app.base.errors import InvalidInputError, Problem
from app.base.web.forms import (
    Form,
    FormField,
    document_texts,
    field_labels,
    field_value,
    form_fields,
    parse_number,
    parse_pairs,
    refuse_other,
)
from app.retrievers.documents.requests import apply_preset
from app.retrievers.documents.retrievers import GENERIC, RetrieverDocument
from app.retrievers.domain.mapping_suggestions import MAPPED_FIELDS
from app.retrievers.domain.retrievers import Dialect, Scale, ScorerKind
from app.retrievers.presets import PRESETS

KEEP, NO_CHOICE = "keep", ""
"""Choices of a scorer: as it is stored, and whatever follows from the rest."""
NO_AUTH: Final = "none"
AUTH_FIELDS: Final = {kind: form_fields(document, prefix=f"auth.{kind}.") for kind, document in AUTH_KINDS.items()}
AUTH_TITLES: Final = {NO_AUTH: "none"} | {kind: document.model_config["title"] for kind, document in AUTH_KINDS.items()}
_KEY_HEADER, _KEY_QUERY = "auth.api_key.header", "auth.api_key.query"
_USUAL_KEY_HEADER = "X-Api-Key"
_OTHER_LABELS: Mapping[str, str] = {
    "embedding": "Embeddings",
    "auth": "Authentication",
    "request": "Request",
    "options": "Variables",
    "scorer": "Scores are",
    "response": "Response mapping",
}
_OWN_PARTS = ("slug", "embedding.", "response.", "scorer.", "request.headers")
"""Paths of fields that have a function of their own here."""


class ScorerBody(TypedDict, total=False):
    """JSON of a scorer that the form can choose."""

    kind: str
    scale: str
    anchor: Any


@cache
def wizard_fields(dialect: Dialect) -> Mapping[str, FormField]:
    """Fields of the form by path, but for those of the authentication and of an endpoint that answers."""
    fields = form_fields(RetrieverDocument, kind=dialect)
    return {path: one for path, one in fields.items() if not path.startswith(("auth.", "scorer.auth.", "answer."))}


MAPPING_FIELDS: Final = {name: wizard_fields(Dialect.HTTP)[f"response.{name}"] for name in MAPPED_FIELDS}


def labels(dialect: Dialect) -> dict[str, str]:
    """Labels of the fields and groups of the form by path."""
    auth = {path: label for fields in AUTH_FIELDS.values() for path, label in field_labels(fields).items()}
    return {**_OTHER_LABELS, **field_labels(wizard_fields(dialect)), **auth}


def preset_body(preset: str) -> dict[str, Any]:
    """JSON of a new retriever: what its preset says. Raises InvalidInputError for an unknown one."""
    refuse_other(preset, PRESETS, "preset")
    known = PRESETS[preset]
    body = apply_preset({"preset": preset}, known)
    if known.response_as_one:
        body["response"] = {}
    if known.needs_auth or known.dialect is Dialect.SQL:
        body["auth"] = dict(known.auth)
    return {"slug": "", "url": "", **body}


def new_form_texts(preset: str) -> dict[str, str]:
    """Texts of the form of a new retriever: its preset's, and the usual header of an API key that has no place yet.

    Raises InvalidInputError for an unknown preset.
    """
    texts = form_texts(preset_body(preset))
    has_place = texts.get(_KEY_HEADER) or texts.get(_KEY_QUERY)
    return texts if has_place else texts | {_KEY_HEADER: _USUAL_KEY_HEADER}


def place_key_problem(problem: Problem) -> Problem:
    """Put the problem of an API key without one place at its header, in the labels of the form; others stay."""
    if problem.path != "auth" or problem.message != KEY_IN_ONE_PLACE:
        return problem
    header, query = (AUTH_FIELDS["api_key"][path].label for path in (_KEY_HEADER, _KEY_QUERY))
    return Problem(path=_KEY_HEADER, message=f"fill in either {header} or {query}: the key goes to one of them")


def form_texts(body: Mapping[str, Any]) -> dict[str, str]:
    """Texts of the form for the public JSON of a retriever."""
    preset = PRESETS[body["preset"]]
    auth = body.get("auth") or {}
    texts = {
        **document_texts(wizard_fields(preset.dialect), body).texts,
        "preset": preset.name,
        "request.headers": "\n".join(
            f"{name}: {value or ''}" for name, value in (body["request"].get("headers") or {}).items()
        ),
        "auth.kind": auth.get("kind") or NO_AUTH,
        "scorer": scorer_choice(body),
    }
    texts["request.method"] = texts.get("request.method") or "POST"
    for kind, fields in AUTH_FIELDS.items():
        style = next((one for one in (auth, preset.auth) if one.get("kind") == kind), {})
        texts |= document_texts(fields, {"auth": {kind: style}}).texts
    texts |= {f"options.{one.name}": one.default or "" for one in preset.options}
    return texts | {f"options.{name}": value or "" for name, value in (body.get("options") or {}).items()}


def document_body(form: Form, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """JSON of a submitted retriever; a secret left empty is null where one is stored, an unchanged field is as stored.

    Raises InvalidInputError for JSON that is none and for headers without a colon.
    """
    before = stored or {}
    name = str(before.get("preset") or form.get("preset", GENERIC))
    preset = PRESETS.get(name)
    body = deepcopy(dict(before)) | {"slug": before.get("slug") or form.stripped("slug"), "preset": name}
    body["request"] = dict(before.get("request") or {})
    _fill(body, wizard_fields(preset.dialect if preset is not None else Dialect.HTTP), form, stored)
    if preset is None or preset.dialect is not Dialect.SQL:
        body["request"]["headers"] = _headers(form, body["request"].get("headers") or {})
    if form.get("request.method") == "GET":
        body["request"]["json"] = None
    body["options"] = _options(form, stored)
    if any(f"response.{name}" in form.texts for name in MAPPED_FIELDS):
        body["response"] = response_body(form)
    else:  # the preset's, where that is a vendor's shape
        body["response"] = {} if preset is None or preset.response_as_one else dict(preset.response)
    optional = {"embedding": _embedding(form, before.get("embedding")), "scorer": scorer_body(form, stored)}
    body |= {part: value for part, value in optional.items() if value is not None}
    auth = _auth(form, before.get("auth") or {})
    return body | ({"auth": auth} if auth is not None or before.get("auth") else {})


def _fill(body: dict[str, Any], fields: Mapping[str, FormField], form: Form, stored: Mapping[str, Any] | None) -> None:
    """Write the changed fields of the form into a body; an emptied one is null or, where null is no value, left out."""
    texts = document_texts(fields, stored).texts if stored is not None else {}
    problems: list[Problem] = []
    for path, one in fields.items():
        if path.startswith(_OWN_PARTS) or path not in form.texts or form.get(path) == texts.get(path):
            continue
        *around, key = path.split(".")
        holder = body[around[0]] if around else body
        try:
            value = field_value(one, form)
        except InvalidInputError as error:
            problems += error.problems
            continue
        if value == "" and not one.is_required:
            value = None
        if value is None and one.control is not Control.JSON and not one.type.is_nullable:
            holder.pop(key, None)
        else:
            holder[key] = value
    if problems:
        raise InvalidInputError(problems)


def without_secrets(form: Form) -> Form:
    """Form as it may be sent back: of headers only the names, and the values the preset says.

    Fields of secrets are never filled in. A line that is no header may be anything, so nothing of it is left.
    """
    preset = PRESETS.get(form.get("preset"))
    known = preset.request.get("headers", {}) if preset is not None else {}
    lines = []
    for line in form.get("request.headers").splitlines():
        name, colon, value = (part.strip() for part in line.partition(":"))
        if colon and name:
            lines.append(f"{name}: {value if known.get(name) == value else ''}".rstrip())
    return replace(form, texts={**form.texts, "request.headers": "\n".join(lines)})


def response_body(form: Form) -> dict[str, str | None]:
    """JSON of the mapping; null takes out what a preset would fill in again."""
    return {name: form.stripped(f"response.{name}") or None for name in (*MAPPED_FIELDS, "absent")}


def scorer_choice(body: Mapping[str, Any]) -> str:
    """Choice of the form that stands for the scorer of a retriever."""
    scorer = body.get("scorer") or {}
    kind = scorer.get("kind")
    if kind == ScorerKind.JUDGED:
        return str(ScorerKind.JUDGED)
    if kind in {None, ScorerKind.SCORE}:
        return str(scorer.get("scale") or NO_CHOICE)
    return str(kind) if kind == ScorerKind.EMBEDDING and scorer.get("url") is None else KEEP


def scorer_body(form: Form, stored: Mapping[str, Any] | None) -> ScorerBody | None:
    """JSON of the chosen scorer; None = whatever follows from the rest."""
    choice, anchor = form.stripped("scorer"), form.stripped("scorer.anchor")
    if stored is not None:
        same_anchor = choice != Scale.UNBOUNDED or anchor == document_texts(_ANCHOR, stored).texts["scorer.anchor"]
        if choice in {KEEP, NO_CHOICE} or (choice == scorer_choice(stored) and same_anchor):
            return cast("ScorerBody", deepcopy(stored.get("scorer") or {}))
    if choice in {NO_CHOICE, KEEP}:
        return None
    if choice in {ScorerKind.JUDGED, ScorerKind.EMBEDDING}:
        return {"kind": choice}
    scorer: ScorerBody = {"kind": str(ScorerKind.SCORE), "scale": choice}
    return {**scorer, "anchor": parse_number(anchor)} if choice == Scale.UNBOUNDED and anchor else scorer


_ANCHOR: Final = {"scorer.anchor": wizard_fields(Dialect.HTTP)["scorer.anchor"]}


def _options(form: Form, stored: Mapping[str, Any] | None) -> dict[str, str]:
    names = [name for name in form.texts if name.startswith("options.")]
    options = {name.removeprefix("options."): form.stripped(name) for name in names if form.stripped(name)}
    if not names and stored:
        options = dict(stored.get("options") or {})
    return options | parse_pairs("options", form.get("options"))


def _headers(form: Form, stored: Mapping[str, Any]) -> dict[str, str | None]:
    headers = parse_pairs("request.headers", form.get("request.headers"))
    missing = [name for name, value in headers.items() if not value and name not in stored]
    if missing:
        message = f"say the value of {', '.join(missing)}: it is not kept on this page"
        raise InvalidInputError([Problem(path="request.headers", message=message)])
    return {name: value or None for name, value in headers.items()}


def _auth(form: Form, stored: Mapping[str, Any]) -> dict[str, str | None] | None:
    kind = form.get("auth.kind", NO_AUTH)
    if kind == NO_AUTH:
        return None
    auth: dict[str, str | None] = dict(stored) if stored.get("kind") == kind else {"kind": kind}
    for path, one in AUTH_FIELDS.get(kind, {}).items():
        name, value = path.removeprefix(f"auth.{kind}."), field_value(one, form)
        if value.strip():
            auth[name] = value
        elif not one.widget.secret:
            auth.pop(name, None)
    return auth


def _embedding(form: Form, stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    url, model, token = (form.stripped(f"embedding.{name}") for name in ("url", "model", "auth.token"))
    if not (url or model or token):
        return None if stored is None else dict(stored)
    embedding = {**(stored or {}), "url": url, "model": model}
    return {**embedding, "auth": {"kind": "bearer", "token": token}} if token else embedding
