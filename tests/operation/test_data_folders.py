"""The database lies in its folder, whatever the folder is called, and is no other's."""

import os
import shlex
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.base.db import keys
from app.base.db.files import lock_for_work
from app.base.db.keys import Scope
from app.base.errors import ConfigurationError
from app.cli import app
from app.config import Settings, load_settings
from app.main import open_service
from app.serving import welcome
from app.wiring import open_store

NAMES = ("da?ta", "da%20ta", "da ta", "da#ta", "da%3Fta", "100 %", "a&mode=ro", "für Öl", "データ", "file:x?mode=ro")


def test_folders_of_any_name_hold_their_own_database(tmp_path: Path) -> None:
    for name in NAMES:
        settings = Settings(data_dir=tmp_path / name)
        store = open_store(settings)
        try:
            keys.create_key(store, name=name, scope=Scope.READ, now=datetime.now(UTC))
            assert store.place == f"SQLite, {tmp_path / name / 'coalmine.db'}"
        finally:
            store.close()
        assert settings.database_file == tmp_path / name / "coalmine.db"
        with lock_for_work(settings.database_file):
            pass
    assert {path.name for path in tmp_path.iterdir()} == set(NAMES)
    assert all((tmp_path / name / "coalmine.db.lock").exists() for name in NAMES)
    for name in NAMES:
        listed = CliRunner().invoke(app, ["keys", "list", "--data-dir", str(tmp_path / name)])
        assert (listed.stdout.count("Z  "), name in listed.stdout) == (1, True), listed.output
    migrated = CliRunner().invoke(app, ["migrate", "--data-dir", str(tmp_path / NAMES[0])])
    assert f"SQLite, {tmp_path / NAMES[0] / 'coalmine.db'}: has the schema already" in migrated.stdout


def test_the_command_that_a_start_shows_names_the_folder_as_a_shell_reads_it(tmp_path: Path) -> None:
    folder = tmp_path / "da ta; ls"
    service = open_service(Settings(data_dir=folder), environment={}, with_worker=False)
    with closing(service.store):
        (shown,) = [one for one in welcome(service, version="1", demo=None, command="coalmine") if "--data-dir" in one]
    assert shlex.split(shown)[-2:] == ["--data-dir", str(folder)]


def test_an_address_of_a_file_names_it_as_urls_do(tmp_path: Path) -> None:
    settings = load_settings({"COALMINE_DATABASE_URL": f"sqlite:///{tmp_path}/da%3Fta%20%23/c.db?timeout=5"})
    assert settings.database_file == tmp_path / "da?ta #" / "c.db"
    settings.database_file.parent.mkdir()
    open_store(settings).close()
    assert settings.database_file.exists()


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("sqlite:////srv/da?ta/coalmine.db", "write %3F for it"),
        ("sqlite:////srv/what?", "write %3F for it"),
        ("sqlite:///file:coalmine.db?mode=ro&uri=true", "must be the path of a file"),
    ],
)
def test_an_address_that_would_open_another_file_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load_settings({"COALMINE_DATABASE_URL": url})


def test_a_folder_whose_name_is_not_utf_8_is_refused_in_a_sentence(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / os.fsdecode(b"caf\xe9"))
    with pytest.raises(ConfigurationError, match="is not UTF-8"):
        open_store(settings)
