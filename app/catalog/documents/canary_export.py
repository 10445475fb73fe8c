"""Writes documents as a canary file that reads back to the same documents, with secrets as `${VARIABLES}`.

The JSON Schema of canary files stands at the end. `canary_files` reads them.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import yaml

from app.alerts.documents import RuleDocument
from app.answers.documents import JudgeDocument
from app.base.documents.fields import INTEGER, NUMBER, Document, format_duration
from app.base.documents.http_fields import AUTH_KINDS, AUTH_SECRETS, TLS_TEXTS
from app.base.documents.parsing import escape_dollars
from app.catalog.documents.canary_documents import CanaryDocument, ChunkDocument
from app.catalog.documents.canary_files import CanaryFile, Documents
from app.catalog.documents.check_documents import (
    MATRIX_SCHEMA,
    CheckDocument,
)
from app.catalog.documents.secrets import ENDPOINTS, hook_for_readers, replaced_secrets, short_name, split_secrets
from app.hooks.documents import HOOK_TEXTS, HookDocument
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.presets import PRESETS

_END: Final = "\n...\n"
_DUMPED_AT_ONCE: Final = 1_000
"""Canaries."""


def write_canary_file(
    documents: Documents,
    *,
    for_readers: bool = False,
    canaries_of: Callable[[str], Iterable[CanaryDocument]] = lambda _suite: (),
) -> str:
    """Return the YAML text: block style, in the given order, without defaults.

    Several suites become several YAML documents in one text, the last of which has everything else. Secrets become
    variables, whose values are those of `exported_secrets`; `for_readers`, who may not define hooks, the addresses of
    webhooks do too, see `hook_for_readers`. `canaries_of` gives those of a suite, by its slug, that are not in its
    document: however many they are, only a block of them is in memory beside the text.
    """
    variables = {place: name for name, (place, _) in _variables(documents, for_readers=for_readers).items()}
    pages = [
        _dump({"suite": suite.slug})
        + _dump_canaries(canaries_of(suite.slug) if suite.canaries is None else suite.canaries)
        for suite in documents.suites
    ]
    if len(pages) != 1:
        pages.append("")
    rest: dict[str, list[dict[str, Any]]] = {
        "retrievers": [_retriever(retriever, variables) for retriever in documents.retrievers],
        "checks": [_check(check) for check in documents.checks],
        "hooks": [{**_lean(hook), **_references("hook", hook.slug, variables)} for hook in documents.hooks],
        "silences": [_lean(silence) for silence in documents.silences],
        "judges": [
            replaced_secrets(_lean(judge), _references("judge", judge.slug, variables)) for judge in documents.judges
        ],
    }
    pages[-1] += "".join([_dump({kind: listed}) for kind, listed in rest.items() if listed])
    return "---\n".join(page for page in pages if page)


def _dump_canaries(canaries: Iterable[CanaryDocument]) -> str:
    """Return the canaries of a suite, dumped in blocks: a dumper keeps a kilobyte for each until it ends."""
    left = iter(canaries)
    texts = ["canaries:\n"]
    while block := [_canary(canary) for canary in islice(left, _DUMPED_AT_ONCE)]:
        texts.append(_dump({"canaries": block}).removeprefix(texts[0]))
    return "".join(texts) if len(texts) > 1 else ""


def import_pages(documents: Documents) -> list[dict[str, Any]]:
    """Return bodies for `POST /v1/import`, secrets included: one per suite, and one for the rest."""
    pages: list[dict[str, Any]] = [
        {"suite": suite.slug, "canaries": [canary.data() for canary in suite.canaries or ()]}
        for suite in documents.suites
    ]
    rest: dict[str, Iterable[Document]] = {
        "retrievers": documents.retrievers,
        "checks": documents.checks,
        "hooks": documents.hooks,
        "silences": documents.silences,
        "judges": documents.judges,
    }
    return [*pages, {kind: [document.data() for document in documents] for kind, documents in rest.items()}]


def exported_secrets(documents: Documents) -> dict[str, str]:
    """Return the variables of `write_canary_file` with their values, which must be set to read the file back."""
    return {name: value for name, (_, value) in _variables(documents).items()}


def _variables(documents: Documents, *, for_readers: bool = False) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return a variable for every secret: name -> ((kind, slug, name of the secret), value)."""
    named: dict[str, tuple[tuple[str, ...], str]] = {}
    owners: Iterable[tuple[str, HookDocument | RetrieverDocument | JudgeDocument]] = (
        *(("retriever", retriever) for retriever in documents.retrievers),
        *(("hook", hook) for hook in documents.hooks),
        *(("judge", judge) for judge in documents.judges),
    )
    for kind, owner in owners:
        secrets = split_secrets(owner)[1]
        if for_readers and isinstance(owner, HookDocument) and hook_for_readers(owner.data()) != owner.data():
            secrets["url"] = str(owner.url)
        for secret, value in secrets.items():
            words = (kind, owner.slug, short_name(secret))
            base = re.sub(r"[^A-Za-z0-9]", "_", "_".join(words)).upper()
            names = (base if count == 1 else f"{base}_{count}" for count in range(1, len(named) + 2))
            named[next(name for name in names if name not in named)] = ((kind, owner.slug, secret), value)
    return named


_Variables = Mapping[tuple[str, ...], str]


def _canary(canary: CanaryDocument) -> dict[str, Any]:
    lean = _lean(canary)
    for name in ("expected_chunks", "forbidden_chunks"):
        if name in lean:
            lean[name] = [_chunk(chunk) for chunk in getattr(canary, name)]
    return lean


def _chunk(chunk: ChunkDocument) -> Any:
    lean = _lean(chunk)
    return lean["id"] if lean.keys() == {"id"} else lean


def _retriever(retriever: RetrieverDocument, variables: _Variables) -> dict[str, Any]:
    lean = retriever.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    lean["response"] = retriever.response.model_dump(exclude_defaults=True)
    if RetrieverDocument.model_validate(lean) != retriever:
        lean = _explicit(retriever, lean)
    for endpoint in (lean, *(lean.get(name) or {} for name in ENDPOINTS if name)):
        if isinstance(endpoint.get("timeout"), float):
            endpoint["timeout"] = format_duration(endpoint["timeout"])
    # Request templates are anyone's JSON, in which 1.0 stays 1.0; the secrets are references, not texts to escape.
    lean = {name: _escaped(value, whole=name not in {"request", "answer"}) for name, value in lean.items()}
    lean = replaced_secrets(lean, _references("retriever", retriever.slug, variables))
    return {name: lean[name] for name in sorted(lean, key=_order)}


_FIRST = ("slug", "preset", "url", "options", "lookup", "auth", "tls", "request", "response", "embedding", "scorer")


def _order(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _explicit(retriever: RetrieverDocument, lean: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with those defaults that the preset would otherwise replace by its own values."""
    preset, full = PRESETS[retriever.preset], retriever.data()
    whole = dict(lean)
    for part in ("request", "response", "scorer"):
        given = {name: full[part][name] for name in getattr(preset, part) if name != "headers"}
        whole[part] = {**given, **lean.get(part, {})}
    return {**whole, "lookup": full["lookup"]}


def _references(kind: str, slug: str, variables: _Variables) -> dict[str, str]:
    """Return what stands in the place of the secrets of a definition, by their names."""
    return {place[2]: f"${{{variable}}}" for place, variable in variables.items() if place[:2] == (kind, slug)}


def _check(check: CheckDocument) -> dict[str, Any]:
    lean = _lean(check)
    if check.fetch_k == max(check.k, 10):
        del lean["fetch_k"]
    if lean["schedule"].get("timezone") == "UTC":
        del lean["schedule"]["timezone"]
    if check.rules:
        lean["rules"] = [_rule(rule) for rule in check.rules]
    return lean


def _rule(rule: RuleDocument) -> dict[str, Any]:
    lean: dict[str, Any] = _escaped(rule.without_defaults(), whole=True)
    key = lean.pop("key")
    bare = rule.model_dump(exclude={"key"})
    return lean if RuleDocument.model_validate(bare).key == rule.key else {"key": key, **lean}


def _lean(document: Document) -> dict[str, Any]:
    """Return the document without its defaults, with dollars escaped, durations and whole numbers in short form."""
    lean = document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for name in ("timeout", "max_age", "max_latency"):
        if isinstance(lean.get(name), float):
            lean[name] = format_duration(lean[name])
    escaped: dict[str, Any] = _escaped(lean, whole=True)
    return escaped


def _escaped(value: Any, *, whole: bool = False) -> Any:
    if isinstance(value, str):
        return escape_dollars(value)
    if isinstance(value, dict):
        return {key: _escaped(item, whole=whole) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item, whole=whole) for item in value]
    return int(value) if whole and isinstance(value, float) and value.is_integer() else value


_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_DUMPER):  # type: ignore[misc]  # which of the two base classes there is depends on the installation
    """Quotes every text that our reader or a YAML 1.1 reader would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        """Disable anchors and aliases."""
        del data
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    """Write texts of several lines in block form."""
    style = "|" if "\n" in text.strip("\n") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
for _pattern in (INTEGER, NUMBER):
    _Dumper.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(f"(?:{_pattern.pattern})$"), list("-+.0123456789")
    )


def _dump(part: dict[str, Any]) -> str:
    """Return a part of a page: without the mark that ends a document after a text with empty lines at its end."""
    text = str(yaml.dump(part, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))
    return text.removesuffix(_END) + "\n" if text.endswith(_END) else text


SCHEMA_FILE = Path(__file__).parents[1] / "canary-file.schema.json"

_FILE_KEYS: Mapping[str, tuple[str, ...]] = {
    "HookDocument": HOOK_TEXTS,
    "TlsDocument": TLS_TEXTS,
    **{kind.__name__: AUTH_SECRETS for kind in AUTH_KINDS.values()},
}
"""The keys of each document that have a `*_file` twin."""

_VARIABLE = {"$ref": "#/$defs/Variable"}
_VARIABLE_DEFINITION = {
    "type": "string",
    "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}",
    "description": "A text with ${NAME} or ${NAME:-default}, filled from the environment.",
}


def canary_file_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) of one YAML document of a canary file.

    It is less strict than the reader: it does not compare two keys, such as the order of two bounds.
    """
    schema = CanaryFile.model_json_schema(by_alias=True, mode="validation")
    definitions = schema["$defs"]
    for name, definition in definitions.items():
        _add_file_twins(definition.get("properties", {}), _FILE_KEYS.get(name, ()))
    expected = definitions["CanaryDocument"]["properties"]["expected_chunks"]
    definitions["CanaryDocument"]["properties"]["expected_top_chunks"] = {**expected, "title": "Expected Top Chunks"}
    request = definitions["RequestDocument"]["properties"]
    request["params"] = {**request["query"], "title": "Params"}
    definitions["CheckDocument"]["properties"]["matrix"] = dict(MATRIX_SCHEMA)
    for listed in ("canaries", "retrievers", "checks", "hooks", "silences", "judges"):
        schema["properties"][listed] = {"anyOf": [schema["properties"][listed], {"type": "null"}]}
    tolerant: dict[str, Any] = _with_variables(schema)
    tolerant["$defs"]["Variable"] = _VARIABLE_DEFINITION
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Coalmine canary file"}
    return {**head, **{key: value for key, value in tolerant.items() if key != "title"}}


def _add_file_twins(properties: dict[str, Any], keys: tuple[str, ...]) -> None:
    """Add a `*_file` twin for each of these keys, and for headers."""
    for key in keys:
        if key in properties:
            description = f"A file that holds the {key}, instead of {key}."
            properties[f"{key}_file"] = {"type": "string", "description": description}
    if "headers" in properties:
        properties["headers_file"] = {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "By header name: a file that holds the value, instead of an entry in headers.",
        }


def _with_variables(schema: Any) -> Any:
    """Return the schema in which every scalar with a restricted form may also be a text with a variable."""
    if isinstance(schema, list):
        return [_with_variables(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {
        key: value if key in {"default", "enum", "const"} else _with_variables(value) for key, value in schema.items()
    }
    scalar = schema.get("type") in {"integer", "number", "boolean"} or "enum" in schema or "pattern" in schema
    if not scalar or isinstance(schema.get("type"), dict):
        return inner
    about = {key: inner.pop(key) for key in ("title", "description") if key in inner}
    return {**about, "anyOf": [inner, _VARIABLE]}


def schema_text() -> str:
    """Return the schema as the file holds it."""
    return json.dumps(canary_file_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
