"""Write the boards as the JSON that Grafana provisions: `python -m deploy.grafana.generate`.

The JSON is committed; `make dashboards` writes it anew and a test holds that nothing changes by that. Elsewhere than
on this machine links must lead to another Coalmine: `--coalmine-url https://coalmine.example --into FOLDER`.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.boards import check, comparison, itself, overview
from deploy.grafana.frame import COALMINE_URL, Board, laid_out

FOLDER = Path(__file__).parent / "provisioning" / "dashboards" / "coalmine"
BOARDS = (overview.board, check.board, comparison.board, itself.board)


def main() -> None:
    """Write every board into a folder."""
    parser = argparse.ArgumentParser(description="Write the Grafana dashboards of Coalmine.")
    parser.add_argument("--coalmine-url", default=COALMINE_URL, help="where people reach Coalmine; links lead there")
    parser.add_argument("--into", type=Path, default=FOLDER, help="the folder to write the JSON files into")
    given = parser.parse_args()
    given.into.mkdir(parents=True, exist_ok=True)
    for name, text in written(given.coalmine_url).items():
        (given.into / name).write_text(text, encoding="utf-8")


def written(coalmine_url: str = COALMINE_URL) -> Mapping[str, str]:
    """Give the text of each file by its name."""
    boards = [board() for board in BOARDS]
    return {f"{board.uid}.json": _text(board, coalmine_url.rstrip("/")) for board in boards}


def _text(board: Board, coalmine_url: str) -> str:
    """Give the JSON of a board without what the SDK adds and Grafana's schema does not have.

    Links and annotations it would hide in the menu of controls: it says so of each and takes no other word.
    """
    shape = json.loads(json.dumps(laid_out(board, coalmine_url), cls=JSONEncoder))
    folded = [panel for row in shape["panels"] for panel in row.get("panels", [])]
    for panel in [*shape["panels"], *folded]:
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        if "links" in defaults:
            defaults["links"] = [_only(link, "title", "url", "targetBlank") for link in defaults["links"]]
        if panel["type"] == "table":
            del panel["options"]["footer"]
    for variable in shape["templating"]["list"]:
        for name in ("auto", "auto_count", "auto_min"):
            del variable[name]
    for shown in (*shape["links"], *shape["annotations"]["list"]):
        del shown["placement"]
    return json.dumps(shape, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _only(shape: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: shape[name] for name in names}


if __name__ == "__main__":
    main()
