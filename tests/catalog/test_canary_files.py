"""Canary files: what they say, what is wrong with them and on which line, and that an export reads back."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError, Problem
from app.catalog.documents import canary_files
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.canary_export import (
    SCHEMA_FILE,
    canary_file_schema,
    exported_secrets,
    schema_text,
    write_canary_file,
)
from app.catalog.documents.canary_files import Documents, Source, read_canary_files
from app.catalog.documents.check_documents import CheckDocument
from app.hooks.documents import HookDocument
from app.retrievers.documents.retrievers import RetrieverDocument

NOBODY = 65534
EXAMPLE = """\
suite: dataforge
canaries:
  - key: data-retention            # stable identity
    query: What is DataForge's data retention policy?
    expected_chunks: [retention_policy_doc]          # short form; long form: {id, document, text, grade}
    min_relevance_score: 0.85
    category: simple_factual
    tags: [compliance]
retrievers:
  - slug: docs-search
    preset: generic                # or chroma, qdrant, elasticsearch, ... ; every field below can override
    url: "${DEMO_URL:-http://127.0.0.1:8001}/search"
    request: {method: POST, json: {query: "{{ query }}", top_k: "{{ k }}"}}    # a placeholder keeps its type
    response: {hits: results, id: id, score: score, text: text, document: metadata.source, index_version: index}
    scorer: {kind: score, scale: similarity}
checks:
  - slug: dataforge-docs
    suite: dataforge
    retriever: docs-search
    schedule: {every: 5m}          # or {cron: "*/5 * * * *", timezone: Europe/Berlin}
    k: 5
    rules: [{kind: threshold, measure: coverage, warning: {below: 0.95}, critical: {below: 0.9}, open: {bad: 2, of: 3}}]
    hooks: [ops]
hooks:
  - {slug: ops, kind: webhook, url: "${OPS_WEBHOOK:-http://127.0.0.1:9999/}", secret: "${OPS_SECRET:-whsec_ZGVtby1zZWNyZXQtZGVtby1zZWNyZXQtZGVtbw==}"}
"""  # noqa: E501 - as users write it
SCHEMA = jsonschema.Draft202012Validator(canary_file_schema())
SECRET = "whsec_ZGVtby1zZWNyZXQtZGVtby1zZWNyZXQtZGVtbw=="


def read(*texts: str | bytes, environment: dict[str, str] | None = None, **options: Any) -> Documents:
    files = [(f"{'abc'[number]}.yaml", text) for number, text in enumerate(texts)]
    return read_canary_files(files, environment or {}, options.pop("read_secret", None), **options)


def problems(*texts: str | bytes, **options: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read(*texts, **options)
    assert all(problem.file and problem.line for problem in caught.value.problems)
    return [str(problem) for problem in caught.value.problems]


def with_line(number: int, line: str) -> str:
    """Return the example with one line replaced."""
    lines = EXAMPLE.splitlines()
    lines[number - 1] = line
    return "\n".join(lines)


def test_the_example_is_read() -> None:
    documents = read(EXAMPLE)
    [suite], [retriever], [check], [hook] = documents.suites, documents.retrievers, documents.checks, documents.hooks
    assert suite.slug == "dataforge"
    assert (suite.canaries or ())[0].to_domain().judgments[0].id == "retention_policy_doc"
    assert retriever.url == "http://127.0.0.1:8001/search"
    assert retriever.to_domain().json == {"query": "{{ query }}", "top_k": "{{ k }}"}
    assert (check.fetch_k, check.rules[0].key, check.hooks) == (10, "threshold-coverage", ("ops",))
    assert hook.secret == SECRET
    assert documents.sources == {
        ("suite", "dataforge"): Source(file="a.yaml", line=1),
        ("canary", "dataforge", "data-retention"): Source(file="a.yaml", line=3),
        ("retriever", "docs-search"): Source(file="a.yaml", line=10),
        ("check", "dataforge-docs"): Source(file="a.yaml", line=17),
        ("hook", "ops"): Source(file="a.yaml", line=25),
    }


@pytest.mark.parametrize(("line", "text", "wanted"), [(4, "    querry: x", "query"), (1, "siute: dataforge", "suite")])
def test_a_misspelt_key_is_told_on_its_line(line: int, text: str, wanted: str) -> None:
    misspelt = text.strip().partition(":")[0]
    told = [
        one for one in problems(with_line(line, text)) if f"unknown key '{misspelt}'; did you mean '{wanted}'?" in one
    ]
    assert [one.partition(": ")[0] for one in told] == [f"a.yaml:{line}"]


@pytest.mark.parametrize(
    ("line", "text", "told"),
    [
        (4, "    query: 42", "canaries[0].query: must be text, not a number; put it in quotes"),
        (6, '    min_relevance_score: "0.85"', "canaries[0].min_relevance_score: must be a number, not text"),
        (8, "    tags: [a, 5]", "canaries[0].tags[1]: must be text, not a number; put it in quotes"),
        (8, "    key: again", "the key 'key' is given twice, first on line 3"),
        (11, "    preset: chrome", "retrievers[0].preset: unknown preset 'chrome'; did you mean 'chroma'?"),
        (12, "    url: ${NOWHERE}/search", "the variable NOWHERE is not set; set it, or write ${NOWHERE:-default}"),
        (12, "    url: ${9}", "'${9}' is not a variable; write ${NAME} or ${NAME:-default}, or $$ for a dollar sign"),
        (12, "    url: ${A", "'${A' is not a variable; write ${NAME} or ${NAME:-default}, or $$ for a dollar sign"),
        (15, "    scorer: !score {}", "tags such as !score are not understood"),
        (18, "    suite: dataforg", "checks[0].suite: there is no suite 'dataforg'; did you mean 'dataforge'?"),
        (19, "    retriever: other", "checks[0].retriever: there is no retriever 'other'"),
        (21, "    k: 5\n    enabled: yes", "checks[0].enabled: must be true or false, not text ('yes')"),
        (23, "    hooks: [opps]", "checks[0].hooks[0]: there is no hook 'opps'; did you mean 'ops'?"),
        (15, "    ? [a]\n    : b", "a key must be text"),
    ],
)
def test_a_wrong_value_is_told_on_its_line(line: int, text: str, told: str) -> None:
    found = problems(with_line(line, text))
    at = line + (0 if "enabled" not in text else 1)
    assert f"a.yaml:{at}: {told}" in found
    assert len(found) == 1


def test_a_key_inside_a_long_flow_is_told_on_its_own_line() -> None:
    text = with_line(
        22, "    rules: [{kind: threshold,\n      measure: coverage, critical: {below: 0.9},\n      marg: 1}]"
    )
    assert problems(text) == ["a.yaml:24: checks[0].rules[0].marg: unknown key 'marg'; did you mean 'margin'?"]


def test_a_missing_key_is_told_where_the_item_begins() -> None:
    assert problems("suite: s\ncanaries:\n  - query: a\n    key: a\n  - key: b\n    tags: []\n") == [
        "a.yaml:5: canaries[1].query: the key 'query' is missing"
    ]


def test_all_problems_of_all_files_are_told_in_order() -> None:
    first = "suite: s\ncanaries:\n  - key: a\n    query: [x]\n  - key: a\n    query: y\nchekcs: []\n"
    second = "suite: s\ncanaries:\n  - key: a\n    query: ${X}\n"
    assert problems(first, second) == [
        "a.yaml:4: canaries[0].query: must be text, not a list",
        "a.yaml:5: canaries[1].key: the canary 'a' is defined twice, first at a.yaml:3",
        "a.yaml:7: chekcs: unknown key 'chekcs'; did you mean 'checks'?",
        "b.yaml:3: canaries[0].key: the canary 'a' is defined twice, first at a.yaml:3",
        "b.yaml:4: the variable X is not set; set it, or write ${X:-default}",
    ]


@pytest.mark.parametrize("kind", ["retriever", "check", "hook"])
def test_a_slug_in_two_files_is_refused(kind: str) -> None:
    items = {
        "retriever": "{slug: x, url: http://x/, response: {hits: h, id: i}}",
        "check": "{slug: x, suite: s, retriever: r, schedule: {every: 1m}}",
        "hook": "{slug: x, kind: webhook, url: http://x/}",
    }
    text = f"{kind}s:\n  - {items[kind]}\n"
    known = {"suite": ["s"], "retriever": ["r"]}
    assert problems(text, text, existing=known) == [
        f"b.yaml:2: {kind}s[0].slug: the {kind} 'x' is defined twice, first at a.yaml:2"
    ]


def test_files_that_name_one_suite_are_joined() -> None:
    files = [f"suite: s\ncanaries: [{{key: {key}, query: q}}]" for key in ("a", "b")]
    [suite] = read(*files).suites
    assert [canary.key for canary in suite.canaries or ()] == ["a", "b"]


def test_several_documents_in_one_file_are_read_one_by_one() -> None:
    text = "suite: s\ncanaries: [{key: a, query: q}]\n---\nsuite: t\ncanaries: [{key: a, query: q}]\n---\nhooks: []\n"
    assert [suite.slug for suite in read(text).suites] == ["s", "t"]
    assert problems(text + "---\nhook: []\n") == ["a.yaml:9: hook: unknown key 'hook'; did you mean 'hooks'?"]


@pytest.mark.parametrize(("text", "suites"), [("suite: s\ncanaries:\nretrievers:\n", 1), ("hooks: []\n", 0)])
def test_a_file_may_say_little(text: str, suites: int) -> None:
    assert [len(suite.canaries or ()) for suite in read(text).suites] == [0] * suites


@pytest.mark.parametrize("text", ["", "\ufeff", "# nothing\n", "---\n", "---\n---\n", "{}\n"])
def test_an_empty_file_is_refused_and_archives_nothing(text: str) -> None:
    assert problems(EXAMPLE, text) == ["b.yaml:1: is empty; delete it to archive what it defined"]


def test_a_file_of_the_wrong_shape_is_told_with_its_line() -> None:
    cases: list[tuple[str | bytes, str]] = [
        ("- a\n", "a.yaml:1: must be a mapping, not a list"),
        ("canaries:\n  - {key: a, query: q}\n", "a.yaml:1: canaries: need a suite; add 'suite: NAME'"),
        ("suite: s\nhooks: {}\n", "a.yaml:2: hooks: must be a list, not a mapping"),
        ("suite: s\n\nhooks: *base\n", "a.yaml:3: unknown alias '*base'"),
        ("suite: s\nhooks: &a [*a]\n", "a.yaml:2: unknown alias '*a'"),
        (b"suite: s\n# caf\xe9\n", "a.yaml:2: is not UTF-8"),
        ("suite: s\n# \x07\n", "a.yaml:2: holds the character U+0007, which YAML does not allow"),
        ("suite: s\nhooks: " + "[" * 60, "a.yaml:2: is nested more than 50 levels deep"),
    ]
    for text, told in cases:
        assert problems(text) == [told], text


def test_a_syntax_error_is_told_with_its_line_and_does_not_hide_other_files() -> None:
    broken, wrong = "suite: s\ncanaries:\n  - key: a\n   query: b\n", "suite: t\nextra: 1\nchecks: []\n"
    found = problems(broken, wrong)
    assert found[0].startswith("a.yaml:4: is not YAML: ")
    assert found[1].startswith("b.yaml:2: extra: unknown key 'extra'")


def test_what_an_unreadable_file_may_define_is_not_called_missing() -> None:
    check = "checks:\n  - {slug: x, suite: s, retriever: r, schedule: {every: 1m}}\n"
    assert len(problems("suite: s\n\tx: [", check)) == 1


def test_what_the_store_knows_may_be_named() -> None:
    check = "checks:\n  - {slug: x, suite: s, retriever: r, schedule: {every: 1m}, hooks: [h]}\n"
    read(check, existing={"suite": {"s"}, "retriever": {"r"}, "hook": {"h"}})
    assert problems(check) == [
        "a.yaml:2: checks[0].suite: there is no suite 's'",
        "a.yaml:2: checks[0].retriever: there is no retriever 'r'",
        "a.yaml:2: checks[0].hooks[0]: there is no hook 'h'",
    ]


def test_words_that_old_yaml_took_for_booleans_and_dates_are_text() -> None:
    text = "suite: s\ncanaries:\n  - {key: a, query: no, tags: [on, 2024-01-01, 1:30, .inf]}\n"
    [canary] = read(text).suites[0].canaries or ()
    assert (canary.query, canary.tags) == ("no", ("on", "2024-01-01", "1:30", ".inf"))


def test_anchors_and_merged_mappings_are_understood() -> None:
    text = """\
suite: s
canaries:
  - &base {key: a, query: q, category: negative, tags: &tags [x]}
  - {<<: *base, key: b, tags: *tags}
  - <<: [*base]
    key: c
    min_relevance_score: 2
"""
    assert problems(text) == ["a.yaml:7: canaries[2].min_relevance_score: must be at most 1"]
    canaries = read(text.replace("score: 2", "score: 1")).suites[0].canaries or ()
    assert [(canary.key, canary.category, canary.tags) for canary in canaries] == [
        (key, "negative", ("x",)) for key in "abc"
    ]


def test_aliases_that_explode_are_refused() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "aliases stand for more than 100,000 values" in problems("\n".join(levels))[0]
    merges = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40)]
    assert "aliases stand for more than 100,000 values" in problems("\n".join(merges))[0]


def queried(text: str, **environment: str) -> str:
    [canary] = (
        read(f"suite: s\ncanaries: [{{key: a, query: {text}}}]", environment=environment).suites[0].canaries or ()
    )
    return canary.query


def test_variables_are_filled_in_after_parsing() -> None:
    for written, meant in [
        ('"${A}"', "one"),
        ('"<${A}${B:-two}>"', "<onetwo>"),
        ('"${A:-two}"', "one"),
        ('"${EMPTY:-two}"', "two"),
        ('"x${EMPTY}y"', "xy"),
        ('"$${A}"', "${A}"),
        ('"$$$${A}"', "$${A}"),
        ('"$5 and $A"', "$5 and $A"),
        ('"${B:-a: b}"', "a: b"),
        ("'${YAML}'", "a: [b\n"),
        ("$A", "$A"),
    ]:
        assert queried(written, A="one", EMPTY="", YAML="a: [b\n") == meant, written


def test_a_variable_is_a_number_or_a_boolean_where_the_field_asks_for_one() -> None:
    text = EXAMPLE.replace("k: 5", 'k: ${K}\n    enabled: "${ON}"').replace("0.85", "${MIN:-0.7}")
    documents = read(text, environment={"K": "7", "ON": "false"})
    assert (documents.checks[0].k, documents.checks[0].enabled) == (7, False)
    assert (documents.suites[0].canaries or ())[0].min_relevance_score == 0.7
    assert problems(text, environment={"K": "many", "ON": "yes"}) == [
        "a.yaml:21: checks[0].k: must be a whole number, not text",
        "a.yaml:22: checks[0].enabled: must be true or false, not text ('yes')",
    ]


def test_a_variable_stays_text_where_text_or_free_json_is_asked_for() -> None:
    text = EXAMPLE.replace('top_k: "{{ k }}"', 'top_k: "{{ k }}", tenant: "${TENANT}"')
    assert read(text, environment={"TENANT": "7"}).retrievers[0].to_domain().json["tenant"] == "7"
    assert queried("'${A}'", A="7") == "7"


SECRET_FILES = """\
retrievers:
  - slug: r
    url: http://x/
    request:
      headers: {X-Plain: a}
      headers_file:
        Authorization: /run/secrets/token
    response: {hits: h, id: i}
hooks:
  - slug: h
    kind: webhook
    url: http://x/
    secret_file: /run/secrets/hook
"""


HEADER = "a.yaml:7: retrievers[0].request.headers_file.Authorization"


def unreadable(name: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", name)


def test_a_secret_file_that_cannot_be_read_is_told_on_its_line() -> None:
    assert problems(SECRET_FILES, read_secret=unreadable) == [
        f"{HEADER}: the file '/run/secrets/token' cannot be read: No such file or directory",
        "a.yaml:13: hooks[0].secret_file: the file '/run/secrets/hook' cannot be read: No such file or directory",
    ]


SECRETS = (
    "sk-a1b2c3",
    "hunter.2",
    "aGVsbG8gd29ybGQ/aGVsbG8gd29ybGQ=",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
    "whsec_ZGVtby1zZWNyZXQtZGVtby1zZWNyZXQ.txt",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_written_where_its_file_belongs_is_not_quoted(secret: str) -> None:
    text = f"retrievers:\n  - slug: r\n    url: http://x/\n    auth: {{kind: bearer, token_file: '{secret}'}}\n"
    (told,) = problems(text, read_secret=unreadable)
    assert told == (
        "a.yaml:4: retrievers[0].auth.token_file: the file it names cannot be read: No such file or directory"
    )


@pytest.mark.parametrize("name", ["pw.txt", "secrets/token", "./pw", "/var/run/secrets/kubernetes.io/serviceaccount/t"])
def test_what_looks_like_a_path_is_quoted(name: str) -> None:
    text = f"retrievers:\n  - slug: r\n    url: http://x/\n    auth: {{kind: bearer, token_file: '{name}'}}\n"
    (told,) = problems(text, read_secret=unreadable)
    assert f"the file '{name}' cannot be read" in told


def test_a_key_given_twice_is_quoted_only_where_it_cannot_be_a_secret() -> None:
    text = "retrievers:\n  - slug: r\n    auth:\n      sk-a1: x\n      sk-a1: y\n    tiemout: 1\n    tiemout: 2\n"
    told = problems(text)
    assert "a.yaml:5: this key is given twice, first on line 4" in told
    assert "a.yaml:7: the key 'tiemout' is given twice, first on line 6" in told
    assert "sk-a1" not in str(told)


def test_what_only_looks_like_a_variable_is_not_quoted_where_secrets_are() -> None:
    told = problems("retrievers:\n  - slug: r\n    url: http://x/\n    auth: {kind: bearer, token: '${s3cret'}\n")
    assert told[0].startswith("a.yaml:4: this is not a variable; write ${NAME}")
    assert "s3cret" not in str(told)


def test_a_secret_file_that_is_not_there_is_told_with_its_whole_path_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = """\
retrievers:
  - slug: r
    url: http://x/
    auth: {kind: basic, user: u, password_file: pw.txt}
"""
    where = f"(a path is relative to the working directory, so this is {tmp_path / 'pw.txt'})"
    told = f"the file 'pw.txt' cannot be read: No such file or directory {where}"
    assert problems(text, read_secret=canary_files.read_secret) == [
        f"a.yaml:4: retrievers[0].auth.password_file: {told}"
    ]


def test_a_folder_that_may_not_be_read_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # so that the folder alone keeps out, and none above it
    tmp_path.chmod(0o711)
    folder = Path("canaries")
    folder.mkdir()
    assert canary_files.canary_paths(folder) == []
    (folder / "a.yaml").touch()
    assert canary_files.canary_paths(folder) == [folder / "a.yaml"]
    user = os.geteuid()
    folder.chmod(0)
    if user == 0:  # whom no mode keeps out
        os.seteuid(NOBODY)
    try:
        with pytest.raises(InvalidInputError, match="cannot be read: Permission denied"):
            canary_files.canary_paths(folder)
    finally:
        os.seteuid(user)
        folder.chmod(0o700)


def test_a_text_from_the_network_cannot_read_files_of_the_server() -> None:
    refused = "names a file of this server; only canary files on its own disk may"
    assert problems(SECRET_FILES) == [f"{HEADER}: {refused}", f"a.yaml:13: hooks[0].secret_file: {refused}"]


def test_a_secret_given_twice_is_refused() -> None:
    text = SECRET_FILES.replace("X-Plain", "Authorization") + f"    secret: {SECRET}\n"
    assert problems(text, read_secret=str) == [
        f"{HEADER}: 'Authorization' is given already; write one of the two",
        "a.yaml:13: hooks[0].secret_file: 'secret' is given already; write one of the two",
    ]


@pytest.mark.parametrize("wrong", ["5", "[a]", "x", "null"])
def test_headers_files_of_the_wrong_shape_are_told(wrong: str) -> None:
    text = SECRET_FILES.replace("headers_file:\n        Authorization: /run/secrets/token", f"headers_file: {wrong}")
    assert problems(text, read_secret=lambda _: SECRET) == [
        "a.yaml:6: retrievers[0].request.headers_file: must be a mapping of header names to files"
    ]


def test_an_export_is_short_and_readable() -> None:
    text = write_canary_file(read(EXAMPLE))
    assert (
        text
        == """\
suite: dataforge
canaries:
- key: data-retention
  query: What is DataForge's data retention policy?
  expected_chunks:
  - retention_policy_doc
  min_relevance_score: 0.85
  tags:
  - compliance
retrievers:
- slug: docs-search
  url: http://127.0.0.1:8001/search
  request:
    json:
      query: '{{ query }}'
      top_k: '{{ k }}'
  response:
    hits: results
    id: id
    score: score
    text: text
    document: metadata.source
    index_version: index
  scorer:
    kind: score
    scale: similarity
checks:
- slug: dataforge-docs
  suite: dataforge
  retriever: docs-search
  schedule:
    every: 5m
  rules:
  - kind: threshold
    measure: coverage
    warning:
      below: 0.95
    critical:
      below: 0.9
  hooks:
  - ops
hooks:
- slug: ops
  kind: webhook
  url: http://127.0.0.1:9999/
  secret: ${HOOK_OPS_SECRET}
"""
    )


def test_secrets_of_different_owners_never_share_a_variable() -> None:
    mapping = {"response": {"hits": "h", "id": "i"}, "url": "http://x/"}
    retrievers = [
        parse_document(RetrieverDocument, {"slug": slug, **mapping, "request": {"headers": {name: f"{slug}/{name}"}}})
        for slug, name in (("a", "B-C"), ("a-b", "C"), ("a-b-c", "D"))
    ]
    documents = Documents(retrievers=tuple(retrievers))
    assert exported_secrets(documents) == {
        "RETRIEVER_A_B_C": "a/B-C",
        "RETRIEVER_A_B_C_2": "a-b/C",
        "RETRIEVER_A_B_C_D": "a-b-c/D",
    }
    assert read(write_canary_file(documents), environment=exported_secrets(documents)) == documents


tricky = st.sampled_from(
    ["yes", "1e3", "08", "~", "${X}", "$$", "$${", "<<", "=", "1:30", "a: b", "- x", "#c", "!t", "&a", "*a", "%", "@"]
) | st.sampled_from(
    [
        " lead",
        "trail ",
        "a\nb\n",
        "\nx",
        "\n  in\n\ndent\n\n",
        "`",
        "'",
        '"',
        "\u2028x",
        "\x85",
        "a\tb",
        "é😀",
        "|",
        "x #y",
    ]
)
texts = tricky | st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t$"), min_size=1)
words = texts.filter(str.strip).filter(lambda text: len(text) < 60)
shares = st.floats(0, 1) | st.sampled_from([0, 1, 0.5])
slugs = st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
).filter(lambda value: "{{" not in json.dumps(value))


def some(required: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


chunks = words | some({"id": words}, document=words, text=words) | some({"text": words})
canaries = some(
    {"key": st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,8}", fullmatch=True), "query": words},
    expected_chunks=st.lists(chunks | some({"id": words, "grade": st.integers(0, 3)}), max_size=3, unique_by=str),
    forbidden_chunks=st.lists(st.builds("no {}".format, words), max_size=2, unique=True),
    min_relevance_score=shares,
    max_relevance_score=shares,
    floors=st.dictionaries(st.sampled_from(["R@5", "NDCG@10", "RR"]), shares),
    category=st.sampled_from(["simple_factual", "negative", "procedural"]),
    tags=st.lists(words, max_size=2, unique=True),
)
headers = st.dictionaries(
    st.from_regex(r"X-[A-Za-z_-]{1,6}", fullmatch=True), st.from_regex(r"[ -~]{1,12}", fullmatch=True), max_size=3
).filter(lambda named: len({name.lower() for name in named}) == len(named))
retrievers = some(
    {
        "slug": slugs,
        "url": st.just("https://x.example/?a=$$b"),
        "response": some({"hits": st.just("h"), "id": st.just("'$'"), "score": st.just("s")}),
    },
    request=some(
        {"json": st.lists(json_values, max_size=3).map(lambda values: ["{{ query }}", *values])}, headers=headers
    )
    | some({"method": st.just("GET"), "query": st.just({"q": "{{ query }}", "n": 1.0})}),
    scorer=st.sampled_from([{"kind": "judged"}, {"scale": "cosine"}]),
    concurrency=st.integers(1, 256),
    requests_per_second=st.floats(0.1, 100),
    timeout=st.sampled_from(["10s", "1500ms", "1m"]) | st.floats(0.1, 300),
    score_precision=st.floats(0, 1),
)
bounds = st.floats(0.01, 0.99).map(lambda value: {"below": value}) | st.just({"below": 1})
rules = some(
    {"kind": st.just("threshold"), "measure": st.sampled_from(["coverage", "mrr", "R@5"]), "critical": bounds},
    category=st.sampled_from(["procedural", "comparative"]),
    open=st.sampled_from([{"bad": 3}, {"bad": 1, "of": 2}, {}]),
    close=st.integers(1, 9),
    enabled=st.booleans(),
    key=st.sampled_from(["mine", "threshold-coverage"]),
)
checks = some(
    {
        "slug": slugs,
        "schedule": st.sampled_from(
            [{"every": "90s"}, {"cron": "0 3 * * 1"}, {"cron": "5 4 * * *", "timezone": "Asia/Tokyo"}]
        ),
    },
    k=st.integers(5, 100),
    fetch_k=st.integers(100, 1000),
    cutoffs=st.just([5, 10]),
    rules=st.lists(rules, max_size=1) | st.just([{"kind": "no_data", "enabled": False}]),
    enabled=st.booleans(),
)
hooks = st.one_of(
    some(
        {"slug": slugs, "kind": st.just("webhook"), "url": st.just("http://x/")},
        secret=st.just(SECRET),
        timeout=st.just(3),
    ),
    some({"slug": slugs, "kind": st.sampled_from(["slack", "apprise"]), "url": st.just("https://x/${secret}")}),
    some({"slug": slugs, "kind": st.just("pagerduty"), "routing_key": st.just("0" * 32)}, url=st.just("http://x/")),
    some(
        {"slug": slugs, "kind": st.just("alertmanager"), "url": st.just("http://x/")},
        labels=st.dictionaries(st.sampled_from(["team", "tier"]), words),
    ),
    some(
        {"slug": slugs, "kind": st.just("email"), "host": st.just("x"), "from": st.just("a@b"), "to": st.just(["c@d"])},
        username=st.just("$me"),
        password=st.just("${you} '\""),
        tls=st.sampled_from(["starttls", "implicit"]),
        port=st.integers(1, 65535),
    ).filter(lambda hook: ("username" in hook) == ("password" in hook)),
)


def each_slug_once(
    items: st.SearchStrategy[dict[str, Any]], name: str = "slug"
) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(items, max_size=2, unique_by=lambda item: str(item[name]))


def valid_canary(data: dict[str, Any]) -> bool:
    try:
        parse_document(CanaryDocument, data)
    except InvalidInputError:
        return False
    return True


@pytest.mark.parametrize("text", ["one\n\ntwo\n\n", "one\n...\n", "one\n\n...\n\n"])
def test_a_text_with_empty_lines_at_its_end_ends_no_page_of_an_export(text: str) -> None:
    canary = {"key": "a", "query": "?", "expected_chunks": [{"text": text}]}
    retriever = {"slug": "r", "url": "https://x.example/", "response": {"hits": "h", "id": "i"}}
    documents = Documents(
        suites=(parse_document(SuiteDocument, {"slug": "s", "canaries": [canary]}),),
        retrievers=(parse_document(RetrieverDocument, {**retriever, "request": {"json": ["{{ query }}", text]}}),),
        hooks=(parse_document(HookDocument, {"slug": "h", "kind": "slack", "url": "https://x.example/"}),),
    )
    assert read(write_canary_file(documents), environment=exported_secrets(documents)) == documents


@settings(deadline=None)
@given(
    suites=st.dictionaries(slugs, each_slug_once(canaries.filter(valid_canary), "key"), max_size=2),
    retrievers=each_slug_once(retrievers),
    checks=each_slug_once(checks),
    hooks=each_slug_once(hooks),
)
def test_an_export_of_anything_reads_back_equal(
    suites: dict[str, list[dict[str, Any]]],
    retrievers: list[dict[str, Any]],
    checks: list[dict[str, Any]],
    hooks: list[dict[str, Any]],
) -> None:
    assume(suites or retrievers or checks or hooks)  # of nothing an empty text is written, which is no canary file
    documents = Documents(
        suites=tuple(
            parse_document(SuiteDocument, {"slug": slug, "canaries": listed}) for slug, listed in suites.items()
        ),
        retrievers=tuple(parse_document(RetrieverDocument, retriever) for retriever in retrievers),
        checks=tuple(parse_document(CheckDocument, {"suite": "s", "retriever": "r", **check}) for check in checks),
        hooks=tuple(parse_document(HookDocument, hook) for hook in hooks),
    )
    text = write_canary_file(documents)
    known = {"suite": ["s"], "retriever": ["r"]}
    assert read(text, environment=exported_secrets(documents), existing=known) == documents
    for page in yaml.safe_load_all(text):
        if page is not None:
            SCHEMA.validate(page)


@settings(deadline=None)
@given(st.text(st.sampled_from("ab:- \n[]{}&*!|>'\"#%@`$?,<\t0")))
def test_no_text_makes_the_reader_fail_otherwise_than_by_telling(text: str) -> None:
    told: tuple[Problem, ...] = ()
    try:
        read(text)
    except InvalidInputError as error:
        told = error.problems
    assert all(problem.file == "a.yaml" and 1 <= (problem.line or 0) <= text.count("\n") + 1 for problem in told)


def test_a_floor_no_check_of_the_files_computes_is_told_with_its_line() -> None:
    told = "is not computed in check 'dataforge-docs'; add 7 to the cutoffs of the check"
    floored = EXAMPLE.replace("    tags: [compliance]\n", "    floors:\n      MRR: 0.5\n      R@7: 0.8\n")
    assert problems(floored) == [f"a.yaml:10: canaries[0].floors.R@7: R@7 {told}"]
    suite, rest = floored.split("retrievers:")
    assert problems(suite, f"retrievers:{rest}") == [f"a.yaml:10: canaries[0].floors.R@7: R@7 {told}"]
    assert read(floored.replace("    k: 5\n", "    k: 7\n")).suites[0].canaries


def test_what_a_preset_makes_of_a_variable_that_is_not_set_is_no_second_problem() -> None:
    """A preset looks the collection up under the url; a slug that is missing besides is told all the same."""
    models = '{url: "http://models.test", model: m}'
    page = f"retrievers:\n- preset: chroma\n  url: ${{X}}\n  options: {{collection: c}}\n  embedding: {models}\n"
    assert problems(page) == [
        "a.yaml:2: retrievers[0].slug: the key 'slug' is missing",
        "a.yaml:3: the variable X is not set; set it, or write ${X:-default}",
    ]


def test_the_committed_schema_is_the_documents_own() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), (
        "run: python -m app.catalog.documents.canary_export"
    )
    jsonschema.Draft202012Validator.check_schema(canary_file_schema())


def test_the_schema_names_every_constraint_as_json_schema_does() -> None:
    """Others skip a keyword that they do not know, and check nothing."""

    def keywords(schema: Any) -> set[str]:
        if isinstance(schema, list):
            return set().union(*map(keywords, schema))
        if not isinstance(schema, dict):
            return set()
        named = [part for key in ("properties", "$defs") for part in schema.get(key, {}).values()]
        values = ("properties", "$defs", "default", "const", "enum")
        return schema.keys() | keywords([*named, *(part for key, part in schema.items() if key not in values)])

    validators = jsonschema.Draft202012Validator.VALIDATORS.keys()
    about = {"$schema", "$defs", "title", "description", "default"}
    assert keywords(canary_file_schema()) - validators <= about | {"then", "else"}


def test_the_example_and_the_shipped_canaries_fit_the_schema_and_are_read() -> None:
    shipped = sorted((Path(__file__).parents[2] / "canaries").glob("*.yaml"))
    assert shipped
    for text in (EXAMPLE, *(path.read_text(encoding="utf-8") for path in shipped)):
        for page in yaml.safe_load_all(text):
            SCHEMA.validate(page)
        assert read(text).suites


@pytest.mark.parametrize(
    "page",
    [
        {"suite": "s", "canary": []},
        {"suite": "S"},
        {"suite": "s", "canaries": [{"key": "a", "query": "q", "min_relevance_score": "0.5"}]},
        {"suite": "s", "canaries": [{"key": "a", "query": "q", "expected_chunks": [5]}]},
        {"hooks": [{"slug": "h", "kind": "irc", "url": "http://x/"}]},
        {"hooks": [{"slug": "h", "kind": "slack", "url": "http://x/", "username": "me"}]},
        yaml.safe_load(EXAMPLE.replace("    k: 5\n", "    k: 0\n")),
        yaml.safe_load(EXAMPLE.replace("    k: 5\n", "    k: 101\n")),
        yaml.safe_load(EXAMPLE.replace("min_relevance_score: 0.85", "min_relevance_score: 1.5")),
        yaml.safe_load(EXAMPLE.replace("critical: {below: 0.9}", "critical: {below: 0}")),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(page: dict[str, Any]) -> None:
    assert problems(yaml.safe_dump(page))
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate(page)


def test_a_variable_of_a_hook_may_be_unset_where_nothing_is_sent() -> None:
    text = """suite: docs
canaries: [{key: a, query: a, expected_chunks: [c1]}]
retrievers: [{slug: search, url: "http://127.0.0.1:1/${PATH_OF_SEARCH:-x}"}]
checks:
  - {slug: watch, suite: docs, retriever: search, schedule: {every: 5m}, hooks: [ops, mail]}
hooks:
  - {slug: ops, kind: webhook, url: "${OPS_WEBHOOK}", secret: "${OPS_SECRET}"}
  - {slug: mail, kind: webhook, url: "https://ops.example.com/"}
"""
    files = [("a.yaml", text)]
    documents = read_canary_files(files, {}, None, sends=False)
    assert [hook.slug for hook in documents.hooks] == ["mail"]
    assert [check.hooks for check in documents.checks] == [("ops", "mail")]
    assert [(one.line, one.message.split(";")[0]) for one in documents.unset] == [
        (7, "hook 'ops': the variable OPS_WEBHOOK is not set"),
        (7, "hook 'ops': the variable OPS_SECRET is not set"),
    ]
    assert all(one.message.endswith("; 'serve' and 'apply' refuse it") for one in documents.unset)
    assert documents.unset_hooks == {"ops"}
    with pytest.raises(InvalidInputError, match="OPS_WEBHOOK is not set"):
        read_canary_files(files, {}, None)
    elsewhere = text.replace("PATH_OF_SEARCH:-x", "PATH_OF_SEARCH")
    with pytest.raises(InvalidInputError, match="PATH_OF_SEARCH is not set"):
        read_canary_files([("a.yaml", elsewhere)], {}, None, sends=False)


def test_hooks_on_one_line_each_have_their_own_unset_variable() -> None:
    text = 'hooks: [{slug: a, kind: webhook, url: "${A}"}, {slug: b, kind: webhook, url: "${B}"}]\n'
    documents = read_canary_files([("a.yaml", text)], {}, None, sends=False)
    assert [one.message.split(";")[0] for one in documents.unset] == [
        "hook 'a': the variable A is not set",
        "hook 'b': the variable B is not set",
    ]


def test_an_unset_variable_in_the_place_of_a_hook_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="the variable X is not set"):
        read_canary_files([("a.yaml", 'hooks: ["${X}"]\n')], {}, None, sends=False)


def test_whole_seconds_of_a_variable_are_what_they_are_when_written() -> None:
    def read(seconds: str, environment: Mapping[str, str]) -> Documents:
        text = (
            "suite: s\ncanaries: [{key: a, query: q, expected_chunks: [x]}]\n"
            "retrievers: [{slug: r, url: 'http://127.0.0.1:1/', response: {hits: hits, id: id}}]\n"
            f"checks: [{{slug: c, suite: s, retriever: r, schedule: {{every: {seconds}}}, remind: {seconds}}}]\n"
            f"silences: [{{slug: w, checks: [c], window: {{cron: '0 2 * * 0', duration: {seconds}}}}}]\n"
        )
        return read_canary_files([("a.yaml", text)], environment, None)

    written = read("600", {})
    assert read('"${SECONDS}"', {"SECONDS": "600"}).checks == written.checks
    assert read('"${SECONDS}"', {"SECONDS": "600"}).silences == written.silences
    assert read('"${SECONDS}"', {"SECONDS": "10m"}).checks == written.checks
