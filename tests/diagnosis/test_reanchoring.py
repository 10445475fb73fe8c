"""A renamed chunk is proposed in the place of the old one, and nothing changes before a person agrees."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from typer.testing import CliRunner

from app.base.db.engine import Store
from app.base.errors import InvalidInputError, NotFoundError
from app.catalog.documents.canary_documents import JudgmentDocument
from app.catalog.documents.canary_files import read_canary_files
from app.catalog.service import references, suites
from app.cli import app
from app.diagnosis import store as diagnoses
from app.diagnosis.rendering import Replacement, patch_text
from app.diagnosis.service import reanchoring
from app.diagnosis.views import ReanchorDecision, ReanchorState, ReanchorView
from tests.support.library import API, QUERIES, Diagnosed, shelf
from tests.support.present import present

NOW = "2026-03-02T12:"


def _renamed(store: Store, *keys: str, owner: str = API, **more: Any) -> Diagnosed:
    """Give a world whose index named these chunks anew, which a run has noticed."""
    setting = Diagnosed.of(store, shelf(**more), owner=owner)
    setting.run()
    for key in keys:
        setting.library.chunks[f"{key}@2"] = setting.library.chunks.pop(key)
    setting.run()
    return setting


def _listed(setting: Diagnosed, state: ReanchorState | None = ReanchorState.PROPOSED) -> list[ReanchorView]:
    return reanchoring.list_all(setting.store, "watch", state=state, limit=100)


def _decide(setting: Diagnosed, **wanted: Any) -> ReanchorDecision:
    return reanchoring.decide(setting.store, "watch", **wanted, by="Ada", now=setting.world.clock())


def _expected(setting: Diagnosed, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = references.load_canary(setting.store, "suite", key).body["expected_chunks"]
    return found


# --- canaries of the API -------------------------------------------------------------------------------------


@pytest.mark.both
def test_a_renamed_chunk_is_proposed_accepted_and_found_again(store: Store) -> None:
    setting = _renamed(store, "refunds")
    why = setting.why("refunds")
    (proposed,) = _listed(setting)
    assert (why.cause, why.reanchors) == ("rechunked", [proposed["id"]])
    assert (proposed["key"], proposed["state"], proposed["similarity"]) == ("refunds", "proposed", 1.0)
    assert proposed["judgment"] == {"id": "refunds", "document": None, "text": None, "grade": 1}
    assert [one["id"] for one in proposed["proposals"]] == ["refunds@2"]
    assert _expected(setting, "refunds")[0]["id"] == "refunds", "nobody has agreed yet"
    decided = _decide(setting, accept=[int(proposed["id"])])
    assert decided["accepted"] == [{"id": proposed["id"], "key": "refunds", "state": "accepted"}]
    assert decided["patches"] == []
    assert _expected(setting, "refunds") == [{**one, "source": None} for one in proposed["proposals"]]
    assert _listed(setting) == []
    (taken,) = _listed(setting, ReanchorState.ACCEPTED)
    assert (taken["decided_by"], present(taken["decided_at"])[:14]) == ("Ada", NOW)
    assert setting.run().verdict == "healthy"


def test_evidence_that_somebody_chose_is_kept_under_the_new_name(sqlite_store: Store) -> None:
    span = "A refund is paid within ten working days to the card that was charged"
    canaries = [
        {**one, "expected_chunks": [{"id": "refunds", "text": span, "grade": 2, "source": "task:t"}]}
        for one in shelf("refunds")
    ]
    setting = Diagnosed.of(sqlite_store, canaries, owner=API)
    setting.run()
    del setting.library.chunks["refunds"]
    setting.library.chunks["p7"] = "A refund is paid within ten working days, though to the account that it came from."
    setting.run()
    _decide(setting, accept=None)
    assert _expected(setting, "refunds") == [
        {"id": "p7", "document": None, "text": span, "grade": 2, "source": "task:t"}
    ]
    assert setting.run().verdict == "healthy"


def test_all_are_accepted_or_rejected_at_once(sqlite_store: Store) -> None:
    setting = _renamed(sqlite_store, "refunds", "tokens")
    assert len(_listed(setting)) == 2
    assert {one["key"] for one in _decide(setting, accept=None)["accepted"]} == {"refunds", "tokens"}
    assert setting.run().verdict == "healthy"
    assert _decide(setting, reject=None)["rejected"] == []


@pytest.mark.databases
def test_an_answer_that_another_came_before_is_weighed_anew(store: Store) -> None:
    setting = _renamed(store, "refunds", "tokens")
    ids = {one["key"]: int(one["id"]) for one in _listed(setting)}
    other = Store(store.engine.url.render_as_string(hide_password=False))
    left = [ids["refunds"]]

    def reject(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("coalmine_writes") and left:
            reanchoring.decide(other, "watch", reject=[left.pop()], by="Bea", now=setting.world.clock())

    sa.event.listen(store.engine, "begin", reject, insert=True)
    decided = _decide(setting, accept=list(ids.values()))
    sa.event.remove(store.engine, "begin", reject)
    other.close()
    assert ([one["key"] for one in decided["accepted"]], decided["unchanged"]) == (
        ["tokens"],
        [{"id": str(ids["refunds"]), "key": "refunds", "state": "rejected"}],
    )
    assert _expected(setting, "refunds")[0]["id"] == "refunds"


def test_what_was_rejected_is_not_proposed_again(sqlite_store: Store) -> None:
    setting = _renamed(sqlite_store, "refunds")
    assert len(_decide(setting, reject=None)["rejected"]) == 1
    setting.library.chunks["refunds"] = setting.library.chunks.pop("refunds@2")
    setting.run()
    setting.world.clock.advance(7 * 3600)
    setting.library.chunks["refunds@2"] = setting.library.chunks.pop("refunds")
    setting.run()
    assert setting.why("refunds").cause == "rechunked"
    assert _listed(setting) == []
    setting.library.chunks["refunds"] = setting.library.chunks.pop("refunds@2")
    setting.run()
    setting.library.chunks["refunds@3"] = setting.library.chunks.pop("refunds")  # but another name is
    setting.run()
    assert [one["proposals"][0]["id"] for one in _listed(setting)] == ["refunds@3"]


def test_a_proposal_outlives_no_change_of_its_judgment(sqlite_store: Store) -> None:
    setting = _renamed(sqlite_store, "refunds", "tokens", "limits")
    ids = {one["key"]: int(one["id"]) for one in _listed(setting)}
    changed = [{**one, "expected_chunks": ["limits@2"]} if one["key"] == "limits" else one for one in shelf()]
    changed = [{**one, "expected_chunks": ["elsewhere"]} if one["key"] == "refunds" else one for one in changed]
    setting.apply(changed, owner=API)
    states = {one["key"]: one["state"] for one in _listed(setting, None)}
    assert states == {"refunds": "outdated", "tokens": "proposed", "limits": "accepted"}
    decided = _decide(setting, accept=list(ids.values()))
    assert [one["key"] for one in decided["accepted"]] == ["tokens"]
    assert [one["key"] for one in decided["outdated"]] == ["refunds"]
    assert [(one["key"], one["state"]) for one in decided["unchanged"]] == [("limits", "accepted")]
    assert _expected(setting, "refunds")[0]["id"] == "elsewhere"
    assert {one["key"]: one["state"] for one in _listed(setting, None)} == {
        "refunds": "outdated",
        "tokens": "accepted",
        "limits": "accepted",
    }


def test_the_newest_is_listed_first_though_an_edit_ended_it(sqlite_store: Store) -> None:
    setting = _renamed(sqlite_store, "refunds", "tokens")
    older, newer = sorted(_listed(setting), key=lambda one: int(one["id"]))
    _decide(setting, accept=[int(older["id"])])
    edited = [
        {**one, "expected_chunks": [f"{one['key']}@2"]} if one["key"] in {"refunds", "tokens"} else one
        for one in shelf()
    ]
    setting.apply(edited, owner=API)
    assert [one["id"] for one in _listed(setting, ReanchorState.ACCEPTED)] == [newer["id"], older["id"]]


def test_what_is_no_proposal_of_the_check_is_refused_and_nothing_is_done(sqlite_store: Store) -> None:
    setting = _renamed(sqlite_store, "refunds")
    (proposed,) = _listed(setting)
    number = int(proposed["id"])
    for wanted, said in (
        ({"accept": [number, 99]}, "accept: check 'watch' has no proposal '99'"),
        ({"accept": [number], "reject": [number]}, "is accepted too"),
        ({"accept": None, "reject": [number]}, "leave out the other"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            _decide(setting, **wanted)
    with pytest.raises(NotFoundError):
        reanchoring.decide(setting.store, "nothing", accept=None, by="Ada", now=setting.world.clock())
    assert [one["state"] for one in _listed(setting)] == ["proposed"]


def _propose_again(setting: Diagnosed, key: str, many: int) -> None:
    """Let so many more proposals wait, as if of many canaries like this one."""
    with setting.store.write() as connection:
        check = references.load_definition(setting.store, "check", "watch").id
        rows = diagnoses.list_reanchors(connection, check, state=None, limit=10)
        mine = next(row for row in rows if row.key == key)
        for number in range(many):
            diagnoses.propose(
                connection,
                diagnosis_id=mine.diagnosis_id,
                check_id=mine.check_id,
                canary_id=mine.canary_id,
                canary_version_id=mine.canary_version_id,
                hash=str(number).encode(),
                judgment=dict(mine.judgment),
                proposals=[dict(one) for one in mine.proposals],
                similarity=1.0,
                created_at=mine.created_at,
            )


def test_an_archived_canary_is_outdated_however_many_others_wait(sqlite_store: Store) -> None:
    setting = _renamed(sqlite_store, "refunds", "tokens")
    ids = {one["key"]: int(one["id"]) for one in _listed(setting)}
    _propose_again(setting, "tokens", 1_001)
    suites.archive_canary(setting.store, "suite", "refunds", now=setting.world.clock())
    decided = _decide(setting, accept=[ids["refunds"]])
    assert decided["outdated"] == [{"id": str(ids["refunds"]), "key": "refunds", "state": "outdated"}]
    assert decided["accepted"] == []
    assert [one["key"] for one in _listed(setting, ReanchorState.OUTDATED)] == ["refunds"]


def test_only_proposals_that_can_be_in_the_state_are_read(sqlite_store: Store) -> None:
    setting = _renamed(sqlite_store, "refunds", "tokens")
    _propose_again(setting, "tokens", 250)
    _decide(setting, reject=None)
    asked: list[Any] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_more: Any) -> None:
        if "FROM reanchors" in statement:
            asked.append(values)

    sa.event.listen(setting.store.engine, "before_cursor_execute", note)
    for state, states in ((ReanchorState.PROPOSED, ["proposed"]), (ReanchorState.REJECTED, ["rejected"])):
        asked.clear()
        found = _listed(setting, state)
        assert len(found) == (0 if state is ReanchorState.PROPOSED else 100)
        assert [one for values in asked for one in values if isinstance(one, str)] == states
    numbers = [int(one["id"]) for one in _listed(setting, ReanchorState.REJECTED)]
    assert numbers == sorted(numbers, reverse=True)


# --- canaries of files ---------------------------------------------------------------------------------------


def _file(folder: Path) -> Path:
    """Write the library's canaries as somebody would."""
    lines = ["# ours", "suite: suite", "canaries:"]
    for key, query in QUERIES.items():
        chunks = f"[{key}]" if key != "tokens" else f"\n      - id: {key}\n        grade: 1"
        lines += [
            f"  - key: {key}",
            f"    query: {query}",
            f"    expected_chunks: {chunks}",
            "    min_relevance_score: 0",
        ]
    lines += [
        "hooks:",
        "  - {slug: other, kind: webhook, url: https://a.test/, secret: whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0}",
    ]
    file = folder / "canaries.yaml"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_file_gets_a_patch_to_commit_and_its_proposals_wait_for_it(sqlite_store: Store, tmp_path: Path) -> None:
    file = _file(tmp_path)
    setting = _renamed(sqlite_store, owner="file")
    setting.apply(shelf(), file=str(file))
    for key in ("refunds", "tokens", "export"):
        setting.library.chunks[f"{key}@2"] = setting.library.chunks.pop(key)
    setting.run()
    decided = _decide(setting, accept=None)
    assert (decided["accepted"], len(decided["to_commit"])) == ([], 3)
    (patch,) = decided["patches"]
    assert "secret" not in present(patch["diff"])
    assert "+    expected_chunks: [refunds@2]" in present(patch["diff"]).splitlines()
    assert {one["state"] for one in _listed(setting)} == {"proposed"}
    assert setting.run().verdict == "degraded", "nothing is changed before the file is"
    applied = subprocess.run(
        ["git", "apply", "--unsafe-paths", "--directory=/", "-"],  # noqa: S607 - git is what people commit with
        input=present(patch["diff"]).encode(),
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert applied.returncode == 0, applied.stderr
    read = read_canary_files([(str(file), file.read_bytes())], {}, lambda _: "")
    wanted = {one.key: one.data() for one in read.suites[0].canaries or ()}
    assert wanted["tokens"]["expected_chunks"][0]["id"] == "tokens@2"
    setting.apply(list(wanted.values()), file=str(file))
    assert {one["state"] for one in _listed(setting, None)} == {"accepted"}
    assert setting.run().verdict == "healthy"


_TWO = """suite: suite
canaries:
  - key: refunds
    query: when is a refund paid to the card
    expected_chunks: {chunks}
    min_relevance_score: 0
"""


@pytest.mark.parametrize(
    "chunks",
    [
        "[refunds, {id: tokens, grade: 3}]",
        "[{id: tokens, grade: 3}, refunds]",
        "\n      - refunds\n      - id: tokens\n        grade: 3",
        "\n    - id: tokens\n      grade: 3\n    - refunds",
    ],
)
def test_chunks_that_became_one_are_one_judgment_of_the_higher_grade(
    sqlite_store: Store, tmp_path: Path, chunks: str
) -> None:
    repository = tmp_path / "docs"
    repository.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)  # noqa: S607 - what people commit with
    file = repository / "canaries.yaml"
    file.write_text(_TWO.format(chunks=chunks))
    (suite,) = read_canary_files([(str(file), file.read_bytes())], {}, lambda _: "").suites
    setting = Diagnosed.of(sqlite_store, [one.data() for one in suite.canaries or ()], owner="file")
    setting.apply([one.data() for one in suite.canaries or ()], file=str(file))
    setting.run()
    whole = " ".join(setting.library.chunks.pop(key) for key in ("refunds", "tokens"))
    setting.library.chunks["manual@0"] = whole
    setting.run()
    (patch,) = _decide(setting, accept=None)["patches"]
    assert present(patch["diff"]).startswith("--- a/canaries.yaml\n"), "as its repository names it"
    applied = subprocess.run(
        ["git", "apply", "-"],  # noqa: S607 - the same
        input=present(patch["diff"]).encode(),
        cwd=repository,
        capture_output=True,
        check=False,
    )
    assert applied.returncode == 0, applied.stderr
    (after,) = read_canary_files([(str(file), file.read_bytes())], {}, lambda _: "").suites
    (changed,) = after.canaries or ()
    assert [(chunk.id, chunk.grade) for chunk in changed.expected_chunks] == [("manual@0", 3)]
    assert yaml.safe_load(patch["yaml"])["canaries"][0]["expected_chunks"] == [{"id": "manual@0", "grade": 3}]


def test_a_file_that_is_not_here_gets_its_canaries_written_anew(sqlite_store: Store) -> None:
    setting = _renamed(sqlite_store, "refunds", owner="file")
    (patch,) = _decide(setting, accept=None)["patches"]
    assert (patch["file"], patch["canaries"], patch["diff"]) == ("canaries.yaml", ["refunds"], None)
    page = yaml.safe_load(patch["yaml"])
    assert page["suite"] == "suite"
    assert page["canaries"][0]["expected_chunks"] == ["refunds@2"]


def _replaced(text: str, old: JudgmentDocument, *new: JudgmentDocument) -> str | None:
    return patch_text("f.yaml", text, [Replacement(suite="s", key="a", old=old, new=new)])


def test_a_page_on_one_line_gets_no_patch_for_secrets_may_stand_on_it_too() -> None:
    text = "{suite: s, canaries: [{key: a, query: q, expected_chunks: [x]}], hooks: [{slug: h, secret: whsec}]}\n"
    assert _replaced(text, JudgmentDocument(id="x"), JudgmentDocument(id="z")) is None


def test_what_stands_behind_the_canaries_is_not_quoted() -> None:
    text = "suite: s\ncanaries:\n- key: a\n  query: q\n  expected_chunks: [x]\n"
    diff = _replaced(f"{text}hooks:\n- {{secret: whsec}}\n", JudgmentDocument(id="x"), JudgmentDocument(id="z"))
    assert diff is not None
    assert diff.endswith("-  expected_chunks: [x]\n+  expected_chunks: [z]\n hooks:\n")
    for after in ("hooks: [{slug: h, secret: whsec}]\n", "x: {secret: whsec}\n"):  # no line is left to place it by
        assert _replaced(text + after, JudgmentDocument(id="x"), JudgmentDocument(id="z")) is None


SECRET = "https://a.test/whsec"
CANARY = "suite: s\ncanaries:\n  - key: a\n    query: q\n    expected_chunks: [x]\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{CANARY}# {SECRET}\nhooks:\n",
        f"{CANARY}    # {SECRET}\n",
        "".join(f"  {line}\n" for line in [*CANARY.splitlines(), f"hooks: [{{slug: h, url: '{SECRET}'}}]"]),
        CANARY.replace("[x]", f"[x]  # {SECRET}"),
        CANARY.replace("[x]", f"\n    - !!str # {SECRET}\n      x"),
        CANARY.replace("[x]", f"\n    - text: | # {SECRET}\n        x"),
        CANARY.replace("    query: q\n", "").replace("key: a", f"key: a # {SECRET}"),
        CANARY.replace("key: a", "query: '\u2028\u2028\u2028\u2028'\n    key: a") + f"h: '{SECRET}'\n",
    ],
)
def test_no_patch_where_something_else_than_canaries_would_have_to_be_quoted(text: str) -> None:
    old = JudgmentDocument(text="x\n") if "text" in text else JudgmentDocument(id="x")
    assert _replaced(text, old, JudgmentDocument(id="z")) is None


@pytest.mark.parametrize(
    "text",
    [
        CANARY.replace("  - key", f"  # {SECRET}\n  - key").replace("    expected", "    tags: ['#1']\n    expected")
        + "    category: c#d\n",
        CANARY.replace("query: q", f"query: q  # {SECRET}\n    tags: []") + f"    category: c\n    # {SECRET}\n",
        f"{CANARY}\n\n\n# {SECRET}\nhooks: [{{slug: h, url: '{SECRET}'}}]\n",
        f"{CANARY}---\n{{suite: t, canaries: [{{key: b, query: q}}], hooks: [{{slug: h, url: '{SECRET}'}}]}}\n",
        CANARY.removesuffix("\n"),
        CANARY.replace("[x]", "\n    - text: |\n        # x\n    - y"),
    ],
)
def test_a_patch_leaves_comments_out_and_can_be_applied(text: str, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    old = JudgmentDocument(text="# x\n") if "text" in text else JudgmentDocument(id="x")
    diff = _replaced(text, old, JudgmentDocument(id="z"))
    assert diff is not None
    assert SECRET not in diff
    subprocess.run(["git", "apply", "-"], input=diff.encode(), cwd=tmp_path, check=True)  # noqa: S607 - as above
    page = next(yaml.safe_load_all(file.read_text()))
    assert page["canaries"][0]["expected_chunks"][0] == "z"
    assert file.read_text().count(SECRET) == text.count(SECRET)


def test_a_patch_of_thousands_of_canaries_can_be_applied(tmp_path: Path) -> None:
    """Comparing all lines with all others, this takes half a minute."""
    numbers = range(2_000)
    text = "suite: s\ncanaries:\n" + "".join(
        f"  - key: k{number}\n    query: question\n    expected_chunks:\n      - old{number}\n      - kept\n"
        + "    category: simple_factual\n    tags:\n      - t\n    note: n\n" * (number % 3 > 0)
        for number in numbers
    )
    file = tmp_path / "f.yaml"
    file.write_text(text)
    chosen = [number for number in numbers if number % 7]
    wanted = [
        Replacement(
            suite="s",
            key=f"k{number}",
            old=JudgmentDocument(id=f"old{number}"),
            new=tuple(JudgmentDocument(id=f"new{number}-{part}") for part in range(1 + number % 2)),
        )
        for number in chosen
    ]
    diff = patch_text("f.yaml", text, wanted)
    assert diff is not None
    subprocess.run(["git", "apply", "-"], input=diff.encode(), cwd=tmp_path, check=True)  # noqa: S607 - as above
    for number, canary in zip(numbers, yaml.load(file.read_text(), yaml.CSafeLoader)["canaries"], strict=True):
        new = [f"new{number}-{part}" for part in range(1 + number % 2)] if number % 7 else [f"old{number}"]
        assert canary["expected_chunks"] == [*new, "kept"]


@pytest.mark.parametrize(
    "chunks", ["[&same x]\n  - {key: b, query: q, expected_chunks: [*same]}", "['${NAME:-x}']", "[y]", "{x: y}", "[x"]
)
def test_what_does_not_stand_in_the_file_in_so_many_words_gets_no_patch(chunks: str) -> None:
    text = f"suite: s\ncanaries:\n  - key: a\n    query: q\n    expected_chunks: {chunks}\n"
    assert _replaced(text, JudgmentDocument(id="x"), JudgmentDocument(id="z")) is None


@pytest.mark.parametrize(
    "text", ["yes", "1e3", "a: b", "${HOME}", "two\nlines", "\u0085\u2028 \u202e\U0001f426", 'a"b', " #"]
)
def test_any_text_reads_back_as_it_was_proposed(text: str, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("suite: s\ncanaries:\n- key: a\n  query: q\n  expected_chunks:\n  - x\n")
    new = [JudgmentDocument(id=text, grade=2), JudgmentDocument(document="d", text=text)]
    diff = _replaced(file.read_text(), JudgmentDocument(id="x"), *new)
    assert diff is not None
    subprocess.run(["git", "apply", "-"], input=diff.encode(), cwd=tmp_path, check=True)  # noqa: S607 - as above
    read = read_canary_files([("f.yaml", file.read_bytes())], {}, lambda _: "")
    assert [list(one.expected_chunks) for one in read.suites[0].canaries or ()] == [new]


# --- from the command line -----------------------------------------------------------------------------------


def test_the_command_lists_and_decides(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = _renamed(sqlite_store, "refunds", "tokens")
    monkeypatch.setenv("COALMINE_DATABASE_URL", sqlite_store.engine.url.render_as_string(hide_password=False))
    (first, second) = sorted(int(one["id"]) for one in _listed(setting))

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["reanchor", "--check", "watch", *arguments])

    listed = run()
    assert listed.exit_code == 0, listed.output
    assert "refunds@2" in listed.stdout
    refused = run("--accept", "one")
    assert (refused.exit_code, "'one' is no id of a proposal" in refused.stderr) == (2, True)
    decided = run("--accept", str(first), "--reject", str(second))
    assert decided.exit_code == 0, decided.output
    assert "Accepted, and in force" in decided.stderr
    assert "Rejected" in decided.stderr
    assert "no judgment waits" in run().stdout
    assert json.loads(json.dumps(_listed(setting, None)))[0]["decided_by"] == "command line"
