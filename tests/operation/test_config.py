"""Settings come from the environment alone; a bad one stops the start and says which, a secret one never says what."""

from dataclasses import FrozenInstanceError, fields
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

import pytest

from app.base.db.keys import Scope
from app.base.errors import ConfigurationError
from app.config import SCOPES, Settings, load_settings, read_api_key

GOOD: dict[str, tuple[str, Any]] = {
    "DATABASE_URL": ("postgresql://user:password@db/coalmine", "postgresql://user:password@db/coalmine"),
    "DATA_DIR": ("/var/lib/coalmine", Path("/var/lib/coalmine")),
    "CANARIES": ("canaries", Path("canaries")),
    "HOST": ("0.0.0.0", "0.0.0.0"),  # noqa: S104 - a setting that is read, not bound
    "PORT": ("9000", 9000),
    "LOG_FORMAT": ("json", "json"),
    "SECRET_KEY": ("a-secret-key-0123456789", "a-secret-key-0123456789"),
    "BOOTSTRAP_KEY_FILE": ("/run/secrets/key", Path("/run/secrets/key")),
    "RETRIEVER_ALLOW": ("10.0.0.0/8, search.internal", "10.0.0.0/8, search.internal"),
    "HOOK_ALLOW": ("127.0.0.0/8", "127.0.0.0/8"),
    "PROXY": ("http://user:hunter2@proxy.internal:3128", "http://user:hunter2@proxy.internal:3128"),
    "NO_PROXY": (".internal, 10.0.0.0/8", ".internal, 10.0.0.0/8"),
    "METRICS_TOKEN": ("a-token-of-16-ch", "a-token-of-16-ch"),
    "TRUSTED_PROXIES": ("10.0.0.7, fd00::/64", (IPv4Network("10.0.0.7/32"), IPv6Network("fd00::/64"))),
    "OIDC_ISSUER": ("https://login.example.org/realms/main/", "https://login.example.org/realms/main"),
    "OIDC_CLIENT_ID": ("coalmine", "coalmine"),
    "OIDC_CLIENT_SECRET": ("hunter2 and more", "hunter2 and more"),
    "OIDC_NAME_CLAIM": ("email", "email"),
    "OIDC_GROUPS_CLAIM": ("roles", "roles"),
    "REMOTE_SCOPES": ("*=read, a=b = write", (("*", "read"), ("a=b", "write"))),
    "AUTO_MIGRATE": ("true", True),
    "RETENTION_DAYS": ("30", 30),
    "RUN_THREADS": ("16", 16),
    "PUBLIC_URL": ("https://coalmine.example.org/", "https://coalmine.example.org"),
    "DASHBOARD_URL": ("https://grafana.example.org/d/{check}", "https://grafana.example.org/d/{check}"),
    "PING_URL": ("https://hc-ping.com/0123-4567/", "https://hc-ping.com/0123-4567/"),
    "PING_INTERVAL": ("2m", 120),
    "RUNBOOK_URL": ("https://wiki.example.org/{check}/{rule}", "https://wiki.example.org/{check}/{rule}"),
}
SECRETS = {"DATABASE_URL", "SECRET_KEY", "METRICS_TOKEN", "PING_URL", "PROXY", "OIDC_CLIENT_SECRET"}
BAD: list[tuple[str, str]] = [
    ("DATABASE_URL", "mysql://db/coalmine"),
    ("DATABASE_URL", "coalmine.db"),
    ("HOST", "not a host"),
    ("HOST", "http://localhost"),
    ("HOST", "localhost:8000"),
    ("PORT", "0"),
    ("PORT", "65536"),
    ("PORT", "-1"),
    ("PORT", "http"),
    ("PORT", "8_000"),
    ("PORT", "8000.0"),
    ("LOG_FORMAT", "xml"),
    ("LOG_FORMAT", "JSON"),
    ("RETRIEVER_ALLOW", "10.0.0.0/99"),
    ("HOOK_ALLOW", "a b"),
    ("PROXY", "proxy.internal:3128"),
    ("PROXY", "socks5://proxy.internal:1080"),
    ("PROXY", "http://proxy.internal:3128/path"),
    ("NO_PROXY", "*"),
    ("OIDC_ISSUER", "login.example.org"),
    ("OIDC_ISSUER", "http://login.example.org"),
    ("OIDC_CLIENT_SECRET", "more than one\nline"),
    ("METRICS_TOKEN", "fifteen-letters"),
    ("METRICS_TOKEN", "a token with blanks in it"),
    ("AUTO_MIGRATE", "perhaps"),
    ("AUTO_MIGRATE", "2"),
    ("RETENTION_DAYS", "0"),
    ("RETENTION_DAYS", "1.5"),
    ("RETENTION_DAYS", "forever"),
    ("RETENTION_DAYS", "99999999999"),
    ("RUN_THREADS", "0"),
    ("RUN_THREADS", "17"),
    ("RUN_THREADS", "many"),
    ("PUBLIC_URL", "coalmine.example.org"),
    ("PUBLIC_URL", "javascript:alert(1)"),
    ("PUBLIC_URL", "http://"),
    ("PUBLIC_URL", "https://a b"),
    ("DASHBOARD_URL", "ftp://example.org"),
    ("RUNBOOK_URL", "http://[::1"),
    ("PING_URL", "hc-ping.com/0123-4567"),
    ("PING_INTERVAL", "9s"),
    ("PING_INTERVAL", "25h"),
    ("PING_INTERVAL", "often"),
]


def test_every_variable_of_the_contract_is_read_and_there_is_no_other() -> None:
    settings = load_settings({f"COALMINE_{name}": text for name, (text, _) in GOOD.items()})
    assert {field.name.upper(): getattr(settings, field.name) for field in fields(Settings)} == {
        name: value for name, (_, value) in GOOD.items()
    }


def test_every_setting_says_what_it_is_for() -> None:
    for setting in fields(Settings):
        assert len(setting.metadata["description"]) > 10, setting.name


def test_without_an_environment_everything_has_its_default() -> None:
    settings = load_settings({})
    assert settings == Settings()
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.1", 8000, Path("data"))
    assert settings.embedded
    assert settings.database == f"sqlite:///{Path('data/coalmine.db').resolve()}"
    assert settings.url == "http://127.0.0.1:8000"
    with pytest.raises(FrozenInstanceError):
        settings.port = 1  # type: ignore[misc] # that it cannot be done is the claim


def test_a_bad_value_stops_the_start_and_names_the_variable() -> None:
    for name, text in BAD:
        with pytest.raises(ConfigurationError, match=rf"^COALMINE_{name}: ."):
            load_settings({f"COALMINE_{name}": text})


def test_the_scopes_of_settings_are_those_of_keys() -> None:
    assert tuple(Scope) == SCOPES


def test_an_unknown_variable_is_refused() -> None:
    for name in ["PROT", "HOST_FILE", "port", "", "SECRET", "DATABASE"]:
        with pytest.raises(ConfigurationError, match=rf"^COALMINE_{name}: no such setting"):
            load_settings({f"COALMINE_{name}": "1"})


def test_variables_of_the_commands_are_none_of_ours() -> None:
    environment = {"COALMINE_API_KEY": "cmk_read_x", "COALMINER": "a person", "PORT": "1"}
    assert load_settings(environment) == Settings()
    assert read_api_key(environment) == "cmk_read_x"


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert load_settings(dict.fromkeys([f"COALMINE_{name}" for name in GOOD], "")) == Settings()


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_may_come_from_a_file(name: str, tmp_path: Path) -> None:
    text, value = GOOD[name]
    file = tmp_path / "secret"
    file.write_text(f"{text}\n", encoding="utf-8")
    settings = load_settings({f"COALMINE_{name}_FILE": str(file)})
    assert getattr(settings, name.lower()) == value
    assert text not in repr(settings)


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_file_that_gives_no_secret_stops_the_start(name: str, tmp_path: Path) -> None:
    empty, binary, absent = tmp_path / "empty", tmp_path / "binary", tmp_path / "absent"
    empty.write_text(" \n", encoding="utf-8")
    binary.write_bytes(b"\xff\xfe\x00")
    for file in (empty, binary, absent, tmp_path):
        with pytest.raises(ConfigurationError, match=rf"^COALMINE_{name}: .*COALMINE_{name}_FILE"):
            load_settings({f"COALMINE_{name}_FILE": str(file)})
    empty.write_text(GOOD[name][0], encoding="utf-8")
    with pytest.raises(ConfigurationError, match="set one of the two"):
        load_settings({f"COALMINE_{name}_FILE": str(empty), f"COALMINE_{name}": GOOD[name][0]})


def test_only_secrets_have_file_twins() -> None:
    assert {setting.name.upper() for setting in fields(Settings) if setting.metadata["secret"]} == SECRETS


def test_no_error_and_no_text_of_the_settings_shows_a_secret() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings({"COALMINE_DATABASE_URL": "mysql://me:hunter2@db/x"})
    assert "hunter2" not in str(caught.value)
    settings = load_settings({f"COALMINE_{name}": GOOD[name][0] for name in SECRETS})
    for name in SECRETS:
        assert GOOD[name][0] not in repr(settings)


def test_a_flag_of_the_command_line_wins_where_it_is_given() -> None:
    environment = {"COALMINE_PORT": "9000", "COALMINE_HOST": "localhost"}
    settings = load_settings(environment, port=9001, host=None)
    assert (settings.port, settings.host) == (9001, "localhost")


def test_links_lead_where_people_reach_the_service() -> None:
    assert load_settings({"COALMINE_HOST": "::1", "COALMINE_PORT": "81"}).url == "http://[::1]:81"
    assert load_settings({"COALMINE_PUBLIC_URL": "https://c.example.org/"}).url == "https://c.example.org"


def test_a_flag_wins_over_a_variable_that_cannot_be_read() -> None:
    assert load_settings({"COALMINE_PORT": "x"}, port=9000).port == 9000
