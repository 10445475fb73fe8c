"""Write the typed client of the REST API from the description of a service: `generate.py OPENAPI_JSON [PACKAGE]`.

Models come from datamodel-code-generator, as typed dictionaries; the methods, one for each operation, from here.
"""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent / "coalmine_client"
MODELS, CLIENT = "rest_models.py", "rest.py"
JSON = "application/json"
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_HEAD = '"""What the REST API takes and gives, as typed dictionaries. Made by `generate.py`."""\n'
_MARK = "# --- made by generate.py: a method for each operation of the API ---"


def digest(description: Mapping[str, Any]) -> str:
    """Return what tells one description from another, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def write_models(source: Path, models: Path) -> None:
    """Write the models of a description."""
    options = ("--output-model-type", "typing.TypedDict", "--target-python-version", "3.11", "--formatters", "builtin")
    more = ("--no-use-closed-typed-dict", "--use-standard-collections", "--use-union-operator", "--disable-timestamp")
    command = (sys.executable, "-m", "datamodel_code_generator", "--input", str(source), "--input-file-type", "openapi")
    subprocess.run([*command, *options, *more, "--output", str(models)], check=True)  # noqa: S603 - our own arguments
    text = re.sub(r"\A(#.*\n)+", "", models.read_text(encoding="utf-8"))
    models.write_text(f"{_HEAD}{text}", encoding="utf-8")


def methods(description: Mapping[str, Any]) -> Iterator[str]:
    """Yield the source of a method for each operation."""
    for path, ways in description["paths"].items():
        for verb, way in ways.items():
            if verb in {"get", "put", "post", "delete", "patch"}:
                yield _method(description, path, verb.upper(), way)


def _method(description: Mapping[str, Any], path: str, verb: str, way: Mapping[str, Any]) -> str:
    given = [_resolved(description, one) for one in way.get("parameters", ())]
    in_path = [one for one in given if one["in"] == "path"]
    others = [one for one in given if one["in"] != "path"]
    body = way.get("requestBody")
    takes = [f"{_name(one['name'])}: str" for one in in_path]
    if body is not None:
        kind = _type(body["content"][JSON]["schema"]) if JSON in body["content"] else "dict[str, Any]"
        takes.append(f"body: {kind}" if body.get("required") else f"body: {kind} | None = None")
    keywords = [f"{_name(one['name'])}: {_type(one['schema'])}{_default(one)}" for one in others]
    signature = ", ".join(["self", *takes, *(["*", *keywords] if keywords else [])])
    reads, result = _answer(way)
    address = re.sub(r"\{(\w+)\}", lambda match: f"{{_quoted({_name(match[1])})}}", path)
    sent = [f'"{verb}", f"{address}"' if in_path else f'"{verb}", "{path}"']
    for place, argument in (("query", "query"), ("header", "headers")):
        pairs = [f'"{one["name"]}": {_name(one["name"])}' for one in others if one["in"] == place]
        sent += [f"{argument}={{{', '.join(pairs)}}}"] if pairs else []
    sent += ["body=body"] if body is not None else []
    summary = way["summary"].rstrip(".")
    call = f"{'' if reads == '_send' else 'return '}self.{reads}({', '.join(sent)})"
    return f'    def {way["operationId"]}({signature}) -> {result}:\n        """{summary}."""\n        {call}\n'


def _answer(way: Mapping[str, Any]) -> tuple[str, str]:
    """Return the method that reads the answer of an operation, and the type of what that gives."""
    found = [one.get("content", {}) for status, one in way["responses"].items() if status.startswith("2")]
    schemas = [_type(one[JSON]["schema"]) for one in found if JSON in one]
    if schemas:
        return "_json", " | ".join(dict.fromkeys(schemas))
    if any("text/event-stream" in one for one in found):
        return "_lines", "Iterator[str]"
    return ("_text", "str") if any(found) else ("_send", "None")


def _resolved(description: Mapping[str, Any], one: Mapping[str, Any]) -> Mapping[str, Any]:
    known: Mapping[str, Any] = description["components"].get("parameters", {})
    return known[one["$ref"].rpartition("/")[2]] if "$ref" in one else one


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return f"models.{schema['$ref'].rpartition('/')[2]}"
    if "enum" in schema:
        return f"Literal[{', '.join(json.dumps(one) for one in schema['enum'])}]"
    if any(several := schema.get(word) for word in ("anyOf", "oneOf")):
        return " | ".join(dict.fromkeys(map(_type, several)))
    if schema.get("type") == "array":
        return f"list[{_type(schema.get('items', {}))}]"
    if schema.get("type") == "object":
        return "dict[str, Any]"
    return "None" if schema.get("type") == "null" else _PLAIN.get(schema.get("type", ""), "Any")


def _default(parameter: Mapping[str, Any]) -> str:
    return "" if parameter.get("required") else " | None = None"


def _name(name: str) -> str:
    plain = name.replace("-", "_")
    return f"{plain}_" if plain in {"from", "format"} else plain


def write(source: Path, package: Path = PACKAGE) -> None:
    """Write models and methods of a description into a package that has the head of the client."""
    description = json.loads(source.read_text(encoding="utf-8"))
    write_models(source, package / MODELS)
    client = package / CLIENT
    head = client.read_text(encoding="utf-8").partition(_MARK)[0].rstrip()
    made = f'{head}\n\n    {_MARK}\n\n    DESCRIPTION = "{digest(description)}"\n\n' + "\n".join(methods(description))
    client.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
