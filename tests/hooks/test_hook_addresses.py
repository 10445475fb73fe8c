"""Hooks with addresses they may not reach: said when they are saved, and by every attempt."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.base.addresses import hook_policy, hook_warning, parse_allow
from app.cli import app
from app.config import Settings
from app.hooks.client.webhook import addresses_of
from app.hooks.service.hooks import hook_warnings
from app.main import open_service
from tests.support.api_service import api
from tests.support.fakes import FakeProbe
from tests.support.living import coalmine

ADVICE = "which hooks may not reach: set COALMINE_HOOK_ALLOW="


@pytest.mark.parametrize(
    ("host", "kind", "address"),
    [
        ("127.0.0.1", "loopback", "127.0.0.1"),
        ("localhost", "loopback", "127.0.0.1"),
        ("0x7f000001", "loopback", "127.0.0.1"),
        ("10.1.2.3", "private", "10.1.2.3"),
        ("::1", "loopback", "::1"),
        ("169.254.169.254", "cloud metadata", "169.254.169.254"),
    ],
)
def test_an_address_that_hooks_may_not_reach_is_told_with_the_setting(host: str, kind: str, address: str) -> None:
    warning = hook_warning(hook_policy(), host)
    assert warning == f"{host} is a {kind} address, {ADVICE}{address} and restart the service"
    assert hook_warning(hook_policy(parse_allow(address)), host) is None
    others = hook_policy(parse_allow("192.168.7.7"))
    assert f"add {address} to COALMINE_HOOK_ALLOW and restart" in str(hook_warning(others, host))


def test_a_proxy_of_its_own_that_hooks_may_not_reach_is_told_too() -> None:
    hook = {"slug": "ops", "kind": "webhook", "url": "https://8.8.8.8/", "proxy": "http://10.0.0.7:3128"}
    (warning,) = hook_warnings(hook_policy(), hook)
    assert warning == f"10.0.0.7 is a private address, {ADVICE}10.0.0.7 and restart the service"


@pytest.mark.parametrize("host", ["8.8.8.8", "hooks.example.com", "2606:4700::1111"])
def test_a_public_address_and_a_name_are_no_reason_to_warn(host: str) -> None:
    assert hook_warning(hook_policy(), host) is None


@pytest.mark.parametrize(
    ("addresses", "setting"),
    [
        (["10.0.0.7"], "set COALMINE_HOOK_ALLOW=alerts.internal and restart the service"),
        (["fd00::7", "10.0.0.7"], "set COALMINE_HOOK_ALLOW=alerts.internal and restart the service"),
        (["169.254.169.254"], "set COALMINE_HOOK_ALLOW=169.254.169.254 and restart the service"),
        (["10.0.0.7", "8.8.8.8"], None),
        (["8.8.8.8"], None),
        ([], None),
    ],
)
def test_a_name_is_judged_by_where_it_leads(addresses: list[str], setting: str | None) -> None:
    warning = hook_warning(hook_policy(), "Alerts.Internal.", addresses)
    assert (warning or "").partition("reach: ")[2] == (setting or "")
    assert setting is None or str(warning).startswith(f"Alerts.Internal. resolves to {addresses[0]}, a ")
    assert (
        hook_warning(hook_policy(parse_allow("alerts.internal, 169.254.169.254")), "alerts.internal", addresses) is None
    )


def test_names_are_looked_up_together_and_no_longer_than_they_may_take() -> None:
    found = addresses_of(["localhost", "no-such-name.invalid", "", "a" * 300, "localhost"], seconds=20)
    assert set(found["localhost"]) <= {"127.0.0.1", "::1"}
    assert found["localhost"]
    assert (found["no-such-name.invalid"], found["a" * 300]) == ((), ())
    assert addresses_of([]) == {}


def _run(*arguments: object) -> str:
    """Run a command, which must go well; gives what it notes beside its result."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.stderr.split())


def _leads(hosts: Collection[str]) -> Mapping[str, Sequence[str]]:
    """Know one name."""
    return {host: ("10.0.0.7",) for host in hosts if host == "alerts.internal"}


NAMED = {"kind": "webhook", "url": "https://alerts.internal/in"}
TOLD = f"alerts.internal resolves to 10.0.0.7, a private address, {ADVICE}alerts.internal and restart the service"


def test_saving_a_hook_whose_address_or_name_is_private_warns_and_does_not_refuse(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.client.app.state.look_up = _leads  # type: ignore[attr-defined] # an ASGI app for all it knows
        assert service.client.put("/v1/hooks/ops", json=NAMED).json()["warnings"] == [TOLD]
        imported = {"hooks": [{"slug": "ops", **NAMED}]}
        assert f"hook ops: {TOLD}" in service.client.post("/v1/import", json=imported).json()["notes"]
        assert service.get("/v1/hooks/ops")["warnings"] == [], "reading looks nothing up"
        html = {"accept": "text/html"}
        assert TOLD in service.client.get("/hooks/ops?saved=yes", headers=html).text
        assert TOLD not in service.client.get("/hooks/ops", headers=html).text
        saved = service.client.put("/v1/hooks/ops", json={**NAMED, "url": "http://127.0.0.1:9999/in"}).json()
        assert f"{ADVICE}127.0.0.1" in saved["warnings"][0]
        assert ADVICE in service.client.get("/hooks/ops", headers=html).text
        again = service.client.put("/v1/hooks/ops", json={**saved, "url": "https://hooks.example.com/in"})
        assert again.json()["warnings"] == []
        assert ADVICE not in service.client.get("/hooks/ops", headers=html).text


@pytest.mark.parametrize(
    ("port", "tls", "warned"),
    [
        (
            465,
            "starttls",
            "port 465 usually takes TLS from the first byte: set tls: implicit, or port 587 for STARTTLS",
        ),
        (587, "implicit", "port 587 usually begins without TLS: set tls: starttls, or port 465 for implicit TLS"),
        (465, "implicit", None),
        (2525, "starttls", None),
        (None, "implicit", None),
    ],
)
def test_a_port_of_mail_that_does_not_fit_the_encryption_warns(port: int | None, tls: str, warned: str | None) -> None:
    hook = {"kind": "email", "host": "mail.example.org", "port": port, "tls": tls}
    assert hook_warnings(hook_policy(), hook) == ([] if warned is None else [warned])


def test_applying_prints_which_hooks_may_not_be_reached(tmp_path: Path) -> None:
    file = tmp_path / "hooks.yaml"
    file.write_text("hooks: [{slug: ops, kind: webhook, url: 'http://10.0.0.7/'}]", encoding="utf-8")
    told = f"Note: hook ops: 10.0.0.7 is a private address, {ADVICE}10.0.0.7 and restart the service."
    _run("migrate", "--data-dir", tmp_path / "data")
    assert told in _run("apply", file, "--data-dir", tmp_path / "data")
    with coalmine(tmp_path / "served") as (url, _):  # whose own setting counts, and allows something else
        assert "hooks may not reach: add 10.0.0.7 to COALMINE_HOOK_ALLOW and" in _run("apply", file, "--server", url)


def test_applying_a_file_with_such_a_hook_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "hooks.yaml"
    file.write_text("hooks: [{slug: ops, kind: webhook, url: 'http://10.0.0.7/'}]", encoding="utf-8")
    open_service(Settings(data_dir=tmp_path, canaries=file), environment={}, probe=FakeProbe()).store.close()
    (record,) = [one for one in caplog.records if one.message == "hook_not_reachable"]
    assert (record.levelname, record.__dict__["hook"]) == ("WARNING", "ops")
    assert f"{ADVICE}10.0.0.7" in record.__dict__["detail"]


def test_an_open_service_gives_its_metrics_to_a_scraper_with_a_token(tmp_path: Path) -> None:
    token = {"authorization": "Bearer the-token-of-the-shipped-configuration"}
    with api(tmp_path) as service:
        assert service.client.get("/metrics", headers=token).status_code == 200
        assert service.client.get("/v1/checks", headers=token).status_code == 401
        assert service.client.get("/metrics", headers={**token, "host": "evil.example"}).status_code == 403
