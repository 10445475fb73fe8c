"""Hooks with addresses they may not reach: said when they are saved, and by every attempt."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.adapters.delivery.sending import Sender
from app.config import Settings
from app.domain.addresses import hook_policy, hook_warning, parse_allow
from app.domain.delivery.hooks import Hook, Message
from app.main import open_service
from tests.support.api_service import api
from tests.support.fakes import FakeProbe

ADVICE = "hooks may not reach it unless COALMINE_HOOK_ALLOW includes"


@pytest.mark.parametrize(
    ("host", "kind", "network"),
    [
        ("127.0.0.1", "loopback", "127.0.0.1/32"),
        ("localhost", "loopback", "127.0.0.1/32"),
        ("0x7f000001", "loopback", "127.0.0.1/32"),
        ("10.1.2.3", "private", "10.1.2.3/32"),
        ("::1", "loopback", "::1/128"),
        ("169.254.169.254", "cloud metadata", "169.254.169.254/32"),
    ],
)
def test_an_address_that_hooks_may_not_reach_is_told_with_the_setting(host: str, kind: str, network: str) -> None:
    warning = hook_warning(hook_policy(), host)
    assert warning is not None
    assert warning.startswith(f"{host} is a {kind} address; {ADVICE} {network}")
    assert hook_warning(hook_policy(parse_allow(network)), host) is None


@pytest.mark.parametrize("host", ["8.8.8.8", "hooks.example.com", "2606:4700::1111"])
def test_a_public_address_and_a_name_are_no_reason_to_warn(host: str) -> None:
    assert hook_warning(hook_policy(), host) is None


def test_saving_a_hook_with_a_private_address_warns(tmp_path: Path) -> None:
    hook = {"kind": "webhook", "url": "http://127.0.0.1:9999/in"}
    with api(tmp_path) as service:
        saved = service.client.put("/v1/hooks/ops", json=hook).json()
        (warning,) = saved["warnings"]
        assert f"{ADVICE} 127.0.0.1/32" in warning
        assert ADVICE in service.client.get("/hooks/ops", headers={"accept": "text/html"}).text
        again = service.client.put("/v1/hooks/ops", json={**saved, "url": "https://hooks.example.com/in"})
        assert again.json()["warnings"] == []
        assert ADVICE not in service.client.get("/hooks/ops", headers={"accept": "text/html"}).text


def test_applying_a_file_with_such_a_hook_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "hooks.yaml"
    file.write_text("hooks: [{slug: ops, kind: webhook, url: 'http://10.0.0.7/'}]", encoding="utf-8")
    open_service(Settings(data_dir=tmp_path, canaries=file), environment={}, probe=FakeProbe()).store.close()
    (record,) = [one for one in caplog.records if one.message == "hook_not_reachable"]
    assert (record.levelname, record.__dict__["hook"]) == ("WARNING", "ops")
    assert f"{ADVICE} 10.0.0.7/32" in record.__dict__["detail"]


def test_a_refused_attempt_names_the_setting() -> None:
    hook = Hook(slug="ops", kind="webhook", url="http://127.0.0.1:9/", timeout_seconds=2)
    receipt = Sender(policy=hook_policy())(hook, Message(id="msg_1", body=b"{}"), datetime.now(UTC))
    assert receipt.error == "blocked"
    assert "loopback address 127.0.0.1" in str(receipt.detail)
    assert "in the setting COALMINE_HOOK_ALLOW and start Coalmine again." in str(receipt.detail)


def test_an_open_service_gives_its_metrics_to_a_scraper_with_a_token(tmp_path: Path) -> None:
    token = {"authorization": "Bearer the-token-of-the-shipped-configuration"}
    with api(tmp_path) as service:
        assert service.client.get("/metrics", headers=token).status_code == 200
        assert service.client.get("/v1/checks", headers=token).status_code == 401
        assert service.client.get("/metrics", headers={**token, "host": "evil.example"}).status_code == 403
