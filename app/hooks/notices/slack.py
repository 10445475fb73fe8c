"""Messages of Slack's incoming webhooks, of blocks of Block Kit.

Limits: https://docs.slack.dev/reference/block-kit/blocks (header 150 characters, a section's text 3,000, its fields
10 of 2,000 each, 50 blocks). Escaping: https://docs.slack.dev/messaging/formatting-message-text (`&`, `<` and `>`
begin mentions, links and commands, and only these three are escaped, in every text object).
"""

import json
from collections.abc import Iterable, Iterator

from app.hooks.domain import Notice
from app.hooks.notices.notice_text import NoticeText, notice_text

_HEADER, _TEXT, _ADVICE, _FIELD, _FIELDS = 150, 2_900, 600, 400, 10
_MARKS = {"critical": "🔴", "warning": "🟠"}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_URL_ESCAPES = str.maketrans({"&": "&amp;", "<": "%3C", ">": "%3E", "|": "%7C"})


def slack_body(notice: Notice) -> bytes:
    """Write a notice for Slack.

    All that strangers wrote stands in plain text, where nothing is marked up; the one marked-up text holds our links.
    """
    texts = notice_text(notice)
    message = {
        "text": escaped(f"{_mark(texts)} {texts.summary}", _TEXT),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": list(_blocks(texts)),
    }
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()


def escaped(text: str, limit: int) -> str:
    """Escape a text so that it is at most `limit` characters long then, and ends with no half of an escape."""
    whole = text.translate(_ESCAPES)
    if len(whole) <= limit:
        return whole
    length, parts = 1, []
    for character in text:
        one = character.translate(_ESCAPES)
        length += len(one)
        if length > limit:
            break
        parts.append(one)
    return "".join(parts) + "…"


def _blocks(texts: NoticeText) -> Iterator[dict[str, object]]:
    title = f"{_mark(texts)} {texts.summary}"
    yield {"type": "header", "text": _plain(title, _HEADER)}
    if len(title.translate(_ESCAPES)) > _HEADER:
        yield _section(texts.summary)
    if texts.reason:
        yield _section(texts.reason)
    yield from (_section(line, _ADVICE) for line in texts.next_step)
    fields = [_plain(f"{name}: {value}", _FIELD) for name, value in texts.facts[:_FIELDS]]
    if fields:
        yield {"type": "section", "fields": fields}
    if texts.canaries or texts.remarks:
        yield _section("\n".join(_listed(texts)))
    if texts.links:
        yield {"type": "context", "elements": [_links(texts.links)]}


def _listed(texts: NoticeText) -> Iterator[str]:
    """Yield a line for each canary, as many as there is room for, and the number of the others."""
    room = _TEXT - len("and 1,000,000 more\n1,000,000 more were failing before")
    for number, line in enumerate(texts.canaries):
        room -= len(f"• {line}\n".translate(_ESCAPES))
        if room < 0:
            yield from [
                *texts.unlisted(len(texts.canaries) - number + texts.more),
                *texts.failing_before,
            ]
            return
        yield f"• {line}"
    yield from texts.remarks


def _section(text: str, limit: int = _TEXT) -> dict[str, object]:
    return {"type": "section", "text": _plain(text, limit)}


def _plain(text: str, limit: int) -> dict[str, object]:
    return {"type": "plain_text", "text": escaped(text, limit), "emoji": False}


def _links(links: Iterable[tuple[str, str]]) -> dict[str, object]:
    text = ""
    for name, url in links:
        link = f"<{url.translate(_URL_ESCAPES)}|{name}>"
        if len(text) + len(link) + 3 <= _TEXT:
            text += f" · {link}" if text else link
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _mark(texts: NoticeText) -> str:
    if texts.resolved:
        return "🟢"
    return _MARKS.get(texts.severity, "⚪")
