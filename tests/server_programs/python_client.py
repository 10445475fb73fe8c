"""Reads answers of a service through a client that openapi-python-client made, and writes back what it read.

Arguments: where the client is, the service, a file with `[{function, names, format?}]`, and one to write what came of
each call to: `parsed` into which model, what that has `written`, and what was `sent`.
"""

import importlib
import json
import pkgutil
import sys
from pathlib import Path

folder, url, calls, results = sys.argv[1:]
sys.path.insert(0, folder)
package = importlib.import_module("coalmine_client")
models = importlib.import_module("coalmine_client.models")
api = importlib.import_module("coalmine_client.api")
modules = {
    module.name.rpartition(".")[2]: module.name for module in pkgutil.walk_packages(api.__path__, f"{api.__name__}.")
}
read = []
with package.Client(base_url=url) as client:
    for call in json.loads(Path(calls).read_text(encoding="utf-8")):
        function = importlib.import_module(modules[call["function"]])
        formats = {"format_": models.ExportDocumentsFormat(call["format"])} if "format" in call else {}
        answer = function.sync_detailed(client=client, **call["names"], **formats)
        parsed = answer.parsed
        written = parsed.to_dict() if hasattr(parsed, "to_dict") else parsed
        sent = answer.content.decode()
        read.append({**call, "parsed": type(parsed).__name__, "written": written, "sent": sent})
Path(results).write_text(json.dumps(read), encoding="utf-8")
