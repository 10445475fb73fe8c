"""How the service logs: one event per line on stderr, its word first (`run_ended`), then fields; times are UTC.

Our loggers use the event as the message and fields as `extra`; other libraries' sentences become the field `detail`
of an event named after the library. As text, the trace of a bug follows its event indented; as JSON it is a field.
"""

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

OURS = "coalmine"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


@contextmanager
def logging_as(form: str, *, requests: bool = False, stream: TextIO | None = None) -> Iterator[None]:
    """Log through one handler, as `text` or `json`: our events from INFO on, other libraries' from WARNING on.

    `requests` also logs every HTTP request, without its query and the secret of a public link.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    levels = {
        "": logging.WARNING,
        OURS: logging.INFO,
        "uvicorn.access": logging.INFO if requests else logging.WARNING,
        "bm25s": logging.WARNING,  # sets a level of its own when imported
    }
    root = logging.getLogger()
    handlers, before = root.handlers[:], {name: logging.getLogger(name).level for name in levels}
    root.handlers[:] = [handler]
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
        root.handlers[:] = handlers


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `event`, `time`, `level`, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the event."""
        event, fields = read_record(record)
        line = {"event": event, "time": _time(record), "level": record.levelname.lower(), **fields}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """For people: time, level, event, `name=value` fields; a value with spaces or quotes is quoted as in JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the event."""
        event, fields = read_record(record)
        parts = [f"{name}={_value(value)}" for name, value in fields.items() if value is not None]
        line = " ".join([_time(record), record.levelname.lower(), event, *parts])
        if record.exc_info:
            line += "\n" + "\n".join(f"    {part}" for part in self.formatException(record.exc_info).splitlines())
        return line


def read_record(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """Split a record into its event and fields."""
    if record.name == OURS or record.name.startswith(f"{OURS}."):
        return record.getMessage(), {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if record.name == "uvicorn.access" and isinstance(record.args, tuple) and len(record.args) == _ACCESS_PARTS:
        client, method, target, _, status = record.args
        path = _SECRET_PATH.sub("...", str(target).partition("?")[0])
        return "request", {"client": client, "method": method, "path": path, "status": status}
    return record.name.partition(".")[0], {"logger": record.name, "detail": record.getMessage()}


_ACCESS_PARTS = 5
_SECRET_PATH = re.compile(r"(?<=/public/)[^/]+")
"""Of a public link, which is its own key."""


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _value(value: Any) -> str:
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, default=str)
    text = str(value)
    plain = text and text.isprintable() and not any(character in ' "=' for character in text)
    return text if plain else json.dumps(text)
