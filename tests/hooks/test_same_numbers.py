"""One incident is told with the same counts, of the same questions, wherever people read of it."""

import json
import re
from collections.abc import Mapping
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

from app.base.db.engine import Store
from app.hooks.domain import HookKind
from tests.support.fakes import answered, hits
from tests.support.pages_service import page as shown_page
from tests.support.pages_service import site
from tests.support.receivers import BOT_TOKEN, ROUTING_KEY
from tests.support.world import AT_ONCE, canary, page

FIELDS: Mapping[HookKind, Mapping[str, object]] = {
    HookKind.WEBHOOK: {"url": "https://hook.test/"},
    HookKind.SLACK: {"url": "https://hooks.slack.test/services/T/B/s"},
    HookKind.SLACK_APP: {"token": BOT_TOKEN, "channel": "C0123456789"},
    HookKind.PAGERDUTY: {"routing_key": ROUTING_KEY},
    HookKind.ALERTMANAGER: {"url": "http://am.test:9093"},
    HookKind.EMAIL: {"host": "smtp.test", "from": "coalmine@example.org", "to": ["ops@example.org"]},
    HookKind.APPRISE: {"url": "ntfy://topic"},
}
QUESTIONS = ("ant", "bee", "cow", "dog", "elk", "fox", "gnu")
"""The last of them expects nothing, is degraded all along, and counts nowhere."""


def test_every_message_and_the_page_of_an_incident_count_the_same_questions(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    world = pages.world
    asked = [*map(canary, QUESTIONS[:-1]), canary(QUESTIONS[-1], expected_chunks=[], category="negative")]
    hooks = [{"slug": str(kind), "kind": str(kind), **fields} for kind, fields in FIELDS.items()]
    what = page(asked, rules=[AT_ONCE], hooks=[str(kind) for kind in FIELDS])
    world.apply({**what, "hooks": hooks})
    for _ in range(3):
        world.run()
    world.probe.answers |= {one: answered(hits("noise")) for one in ("ant", "bee", "cow", "dog")}
    world.run()
    world.deliver_all()
    bodies = {HookKind(slug): message.body for slug, message in world.send.sent}
    assert set(bodies) == set(FIELDS)
    texts = {str(kind): _texts(kind, body) for kind, body in bodies.items()}
    texts["page"] = str(shown_page(pages.client().get("/incidents/1")).text)
    counts = {kind: set(re.findall(r"\b(\d+) of (\d+)\b", text)) for kind, text in texts.items()}
    assert counts == {kind: {("4", "6"), ("2", "6")} for kind in texts}
    assert len(str(message_from_bytes(bodies[HookKind.EMAIL], policy=default)["Subject"])) < 70


def _texts(kind: str, body: bytes) -> str:
    """Read a message as people do."""
    if kind == HookKind.EMAIL:
        mail = message_from_bytes(body, policy=default)
        assert isinstance(mail, EmailMessage)
        parts = [mail.get_body((part,)) for part in ("plain", "html")]
        return "\n".join([str(mail["Subject"]), *(str(part.get_content()) for part in parts if part is not None)])
    message = json.loads(body)
    if kind == HookKind.SLACK_APP:
        assert message.pop("picture").startswith("iVBOR")
    return json.dumps(message, ensure_ascii=False)
