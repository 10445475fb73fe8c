"""Hooks of every kind as users write them: what each kind has, and that its secret is shown to nobody."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import sqlalchemy as sa
import yaml

from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.catalog.documents.canary_export import canary_file_schema, exported_secrets, write_canary_file
from app.catalog.documents.canary_files import Documents, read_canary_files
from app.catalog.documents.secrets import join_secrets, public_json, split_secrets
from app.catalog.tables import definition_versions
from app.hooks.documents import HOOK_SECRETS, OWN_URLS, HookDocument
from app.hooks.domain import Hook, HookKind, Mail, MailTls
from app.hooks.tables import attempts, deliveries
from tests.support.api_service import Api, api
from tests.support.receivers import ROUTING_KEY
from tests.support.world import SECRET

SECRETS: Mapping[str, str] = {
    "webhook": SECRET,
    "slack": "https://hooks.slack.com/services/T000/B000/s3cretT0ken",
    "slack-app": "xoxb-1234-s3cretT0ken",
    "pagerduty": ROUTING_KEY,
    "alertmanager": "s3cret passw0rd",
    "email": "s3cret passw0rd",
    "apprise": "ntfys://s3cretT0ken@ntfy.example.org/topic",
}
HOOKS: Mapping[str, Mapping[str, Any]] = {
    "webhook": {"url": "https://example.org/in", "secret": SECRETS["webhook"]},
    "slack": {"url": SECRETS["slack"]},
    "slack-app": {"token": SECRETS["slack-app"], "channel": "C0123456789"},
    "pagerduty": {"routing_key": SECRETS["pagerduty"]},
    "alertmanager": {
        "url": "https://alerts.example.org/am",
        "username": "coalmine",
        "password": SECRETS["alertmanager"],
        "labels": {"team": "search"},
    },
    "email": {
        "host": "mail.example.org",
        "username": "coalmine",
        "password": SECRETS["email"],
        "from": "coalmine@example.org",
        "to": ["ops@example.org"],
    },
    "apprise": {"url": SECRETS["apprise"]},
}
AUTHORITY = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
MOVES: Mapping[str, Mapping[str, Any]] = {
    "pagerduty": {"url": "https://evil.example/v2/enqueue"},
    "alertmanager": {"url": "https://evil.example/am"},
    "email": {"host": "evil.example"},
}
WITH_SECRETS = pytest.mark.parametrize("kind", list(HookKind))


def hook(kind: str, **changes: Any) -> dict[str, Any]:
    """Describe a hook of a kind."""
    return {"slug": "ops", "kind": str(kind), **HOOKS[kind], **changes}


def document(kind: str, **changes: Any) -> HookDocument:
    """Make the document of a hook of a kind."""
    return parse_document(HookDocument, hook(kind, **changes))


def told(given: Mapping[str, Any]) -> list[str]:
    """Say what is wrong with a hook."""
    with pytest.raises(InvalidInputError) as caught:
        parse_document(HookDocument, dict(given))
    return [str(problem) for problem in caught.value.problems]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service without a worker."""
    with api(tmp_path) as opened:
        yield opened


# --- documents -----------------------------------------------------------------------------------------------


def test_every_kind_has_its_way_into_the_domain() -> None:
    secrets = {kind: document(kind).to_domain().secret for kind in HOOKS}
    assert secrets == {**SECRETS, "slack": None, "apprise": None}
    assert document("pagerduty").to_domain().url == OWN_URLS["pagerduty"]
    assert document("alertmanager", timeout="5s").to_domain() == Hook(
        slug="ops",
        kind=HookKind.ALERTMANAGER,
        url="https://alerts.example.org/am",
        username="coalmine",
        secret=SECRETS["alertmanager"],
        labels={"team": "search"},
        timeout_seconds=5.0,
    )
    assert document("email").to_domain().mail == Mail(
        host="mail.example.org",
        port=587,
        tls=MailTls.STARTTLS,
        sender="coalmine@example.org",
        recipients=("ops@example.org",),
    )


def test_authority_and_proxy_may_stand_in_a_file_and_are_shown() -> None:
    text = yaml.safe_dump({"hooks": [hook("webhook", authority_file="/ca.pem", proxy="http://proxy.corp:3128/")]})
    jsonschema.Draft202012Validator(canary_file_schema()).validate(yaml.safe_load(text))
    (read,) = read_canary_files([("a.yaml", text)], {}, {"/ca.pem": AUTHORITY}.__getitem__).hooks
    assert (read.to_domain().authority, read.to_domain().proxy) == (AUTHORITY.rstrip(), "http://proxy.corp:3128")
    assert split_secrets(read)[0]["authority"] == AUTHORITY.rstrip()
    assert document("webhook").to_domain().proxy is None
    assert document("webhook", proxy="none").to_domain().proxy == ""
    exported = write_canary_file(Documents(hooks=(read,)))
    assert read_canary_files([("a.yaml", exported)], exported_secrets(Documents(hooks=(read,))), None).hooks == (read,)


@pytest.mark.parametrize("host", ["::1", "2001:db8::25", "10.0.0.1", "mail", "mail_1.example.org"])
def test_a_mail_server_may_be_an_address(host: str) -> None:
    mail = document("email", host=host).to_domain().mail
    assert mail is not None
    assert mail.host == host


@pytest.mark.parametrize(("tls", "port"), [("starttls", 587), ("implicit", 465)])
def test_a_mail_server_is_at_the_port_of_its_tls(tls: str, port: int) -> None:
    assert [
        one.mail.port
        for one in (document("email", tls=tls).to_domain(), document("email", tls=tls, port=2525).to_domain())
        if one.mail is not None
    ] == [port, 2525]


@pytest.mark.parametrize("kind", HOOKS)
def test_a_field_of_another_kind_is_refused(kind: str) -> None:
    for other in HOOKS:
        for name in HOOKS[other].keys() - HOOKS[kind].keys() - {"url"}:
            wrong = [one for one in told(hook(kind, **{name: HOOKS[other][name]})) if one.startswith(f"{name}: ")]
            assert len(wrong) == 1
            assert wrong[0].startswith(f"{name}: is not a field of a hook of kind '{kind}'; it has: ")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("webhook", ["url"]),
        ("slack", ["url"]),
        ("slack-app", ["token", "channel"]),
        ("pagerduty", ["routing_key"]),
        ("alertmanager", ["url"]),
        ("email", ["host", "from", "to"]),
        ("apprise", ["url"]),
    ],
)
def test_what_a_kind_needs_is_missed(kind: str, names: list[str]) -> None:
    assert told({"slug": "ops", "kind": kind}) == [f"{name}: the key '{name}' is missing" for name in names]


@pytest.mark.parametrize(
    ("kind", "changes", "wrong"),
    [
        ("slack-app", {"token": "s3cretT0ken"}, "token: must be the bot token of a Slack app, which begins with xoxb-"),
        ("slack-app", {"channel": "#ops"}, "channel: must be the id of a channel such as C0123456789"),
        ("slack-app", {"url": "ftp://s3cretT0ken"}, "url: must be an address that begins with http:// or https://"),
        ("slack", {"token": "xoxb-s3cretT0ken"}, "token: is not a field of a hook of kind 'slack'"),
        ("slack", {"url": "ftp://s3cretT0ken"}, "url: must be an address that begins with http:// or https://"),
        ("apprise", {"url": "s3cretT0ken"}, "url: must be one URL of Apprise"),
        ("apprise", {"url": "json://a b"}, "url: must be one URL of Apprise"),
        ("pagerduty", {"routing_key": "s3cretT0ken"}, "routing_key: must be the integration key"),
        ("pagerduty", {"url": "events.pagerduty.com"}, "url: must be an address"),
        ("alertmanager", {"url": "http://am:9093/api/v2/alerts"}, "url: must be where Alertmanager is"),
        ("alertmanager", {"password": None}, "password: username and password belong together"),
        ("alertmanager", {"username": None}, "username: username and password belong together"),
        ("alertmanager", {"username": "a:b"}, "username: must be of ASCII characters, without a ':'"),
        ("alertmanager", {"labels": {"severity": "page"}}, "labels.severity: must not be a label"),
        ("alertmanager", {"labels": {"check": "x"}}, "labels.check: is set by Coalmine"),
        ("alertmanager", {"labels": {"a-b": "x"}}, "labels.a-b: must be a label name"),
        ("alertmanager", {"labels": {"a": ""}}, "labels.a: must not be blank"),
        ("slack", {"authority": "s3cret"}, "authority: must be a certificate as PEM"),
        ("slack", {"proxy": "proxy.corp:3128"}, "proxy: must be 'none' or an address"),
        ("slack", {"proxy": "http://coalmine:s3cret@proxy.corp:3128"}, "proxy: must be without user and password"),
        ("email", {"proxy": "http://proxy.corp:3128"}, "proxy: is not a field of a hook of kind 'email'"),
        ("apprise", {"authority": AUTHORITY}, "authority: is not a field of a hook of kind 'apprise'"),
        ("email", {"tls": "none"}, "tls: must not be 'none' where there is a password"),
        ("email", {"tls": "ssl"}, "tls: must be one of"),
        ("email", {"port": 0}, "port: must be at least 1"),
        ("email", {"host": "mail.example.org:25 x"}, "host: must be the name or the address"),
        ("email", {"host": "mail.example.org:465"}, "host: must be the name or the address of a mail server; its port"),
        ("email", {"host": "[::1]"}, "host: must be the name or the address of a mail server; its port"),
        ("email", {"host": "10.0.0.1:25"}, "host: must be the name or the address of a mail server; its port"),
        ("email", {"from": "Ops <ops@example.org>"}, "from: must be one plain address"),
        ("email", {"from": "a@b\r\nBcc: c@d"}, "from: must be one plain address"),
        ("email", {"to": ["a@b", "c@d> SIZE=1"]}, "to[1]: must be one plain address"),
        ("email", {"from": "=?utf-8?q?a=0d=0aBcc=3Ab?=@b"}, "from: must be one plain address"),
        ("email", {"to": []}, "to: the key 'to' is missing"),
        ("email", {"password": "s3cretT0ken\n"}, "password: must be at most 1024 characters of printable ASCII"),
    ],
)
def test_what_is_wrong_is_said_in_words_and_without_the_secret(kind: str, changes: Any, wrong: str) -> None:
    (problem,) = told(hook(kind, **changes))
    assert problem.startswith(wrong)
    assert "s3cret" not in problem


@WITH_SECRETS
def test_the_one_secret_of_a_kind_leaves_the_public_json_and_comes_back(kind: HookKind) -> None:
    one = document(kind)
    public, secrets = split_secrets(one)
    assert secrets == {HOOK_SECRETS[kind]: SECRETS[kind]}
    shown = public_json(public, secrets_set=True)
    assert SECRETS[kind] not in str(shown) + repr(one) + repr(one.to_domain())
    assert (shown[HOOK_SECRETS[kind]], shown["secrets_set"]) == (None, [HOOK_SECRETS[kind]])
    assert parse_document(HookDocument, join_secrets(shown, secrets)) == one


@WITH_SECRETS
def test_an_export_names_the_secret_and_reads_back_equal(kind: HookKind) -> None:
    documents = Documents(suites=(), retrievers=(), checks=(), hooks=(document(kind),))
    text = write_canary_file(documents)
    assert SECRETS[kind] not in text
    assert exported_secrets(documents) == {f"HOOK_OPS_{HOOK_SECRETS[kind].upper()}": SECRETS[kind]}
    read = read_canary_files([("a.yaml", text)], exported_secrets(documents), lambda _: "")
    assert read.hooks == documents.hooks


@WITH_SECRETS
def test_a_file_may_hold_the_secret(kind: HookKind) -> None:
    name = HOOK_SECRETS[kind]
    given = {key: value for key, value in hook(kind).items() if key != name} | {f"{name}_file": "/run/secrets/hook"}
    text = yaml.safe_dump({"hooks": [given]})
    jsonschema.Draft202012Validator(canary_file_schema()).validate(yaml.safe_load(text))
    read = read_canary_files([("a.yaml", text)], {}, {"/run/secrets/hook": SECRETS[kind]}.__getitem__)
    assert read.hooks == (document(kind),)


def test_the_schema_knows_which_kind_has_what() -> None:
    schema = jsonschema.Draft202012Validator(canary_file_schema())
    for kind in HOOKS:
        schema.validate({"hooks": [hook(kind)]})
        for other in HOOKS:
            for name in HOOKS[other].keys() - HOOKS[kind].keys() - {"url"}:
                assert not schema.is_valid({"hooks": [hook(kind, **{name: HOOKS[other][name]})]})


# --- the API -------------------------------------------------------------------------------------------------


def _body(kind: str, **changes: Any) -> dict[str, Any]:
    return {key: value for key, value in hook(kind, **changes).items() if key != "slug"}


def test_no_answer_log_metric_or_row_holds_the_secret_of_a_hook(service: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answers = []
    for kind in HOOKS:
        path, body, name = f"/v1/hooks/{kind}", _body(kind), HOOK_SECRETS[kind]
        answers += [service.client.put(path, json=body), service.client.post(f"{path}/test")]
        assert [answer.status_code for answer in answers[-2:]] == [201, 202]
        service.deliver()
        assert service.mailbox.messages[-1][0] == document(kind, slug=kind).to_domain()
        answers += [service.client.get(path), service.client.put(path, json=[body])]
        answers += [service.client.put(path, json={**body, "colour": "red"})]
        answers += [service.client.put(path, json={**body, name: [body[name]]})]
    reads = ("/v1/hooks", "/v1/deliveries", "/v1/export", "/metrics", "/alerts")
    answers += [service.client.get(address) for address in reads]
    with service.service.store.read() as connection:
        rows = [connection.execute(sa.select(table)).all() for table in (deliveries, attempts)]
        rows += [connection.execute(sa.select(definition_versions.c.body)).all()]
    everything = "".join([*(answer.text for answer in answers), caplog.text, repr(rows)])
    assert [secret for secret in SECRETS.values() if secret in everything] == []


def test_what_was_shown_can_be_sent_back_and_keeps_the_secret(service: Api) -> None:
    for kind in HOOKS:
        service.put(f"/v1/hooks/{kind}", _body(kind))
        shown = service.get(f"/v1/hooks/{kind}")
        assert shown[HOOK_SECRETS[kind]] is None
        service.put(f"/v1/hooks/{kind}", {**shown, "timeout": 20.0})
        service.client.post(f"/v1/hooks/{kind}/test")
        service.deliver()
        assert service.mailbox.messages[-1][0] == document(kind, slug=kind, timeout=20.0).to_domain()


def test_a_stored_secret_does_not_follow_its_hook_to_another_address(service: Api) -> None:
    for kind, move in MOVES.items():
        path = f"/v1/hooks/{kind}"
        service.put(path, _body(kind))
        moved = {**service.get(path), **move}
        answer = service.client.put(path, json=moved)
        assert (answer.status_code, "is not sent to another address" in answer.text) == (422, True)
        service.put(path, {**moved, HOOK_SECRETS[kind]: SECRETS[kind]})


def test_a_stored_secret_does_not_follow_its_hook_to_another_kind(service: Api) -> None:
    service.put("/v1/hooks/ops", _body("email"))
    other = _body("alertmanager", password=None, url="https://mail.example.org:587")
    assert service.client.put("/v1/hooks/ops", json=other).status_code == 422
