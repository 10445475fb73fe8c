"""The demo's index loses chunks, then is cut anew: both are told apart, and a patch to the canaries ends it."""

import subprocess
from pathlib import Path
from typing import Any

import httpx2
import yaml

from app.demo.server import create_demo
from app.main import apply_canaries
from tests.support.living import Receiver, coalmine, serving, until

CANARIES = Path(__file__).parents[2] / "canaries"
_KEYS = ("agent-hardware", "daylight-saving", "splunk", "github", "oauth2-setup", "glossary", "slow-query")
SECRET = "whsec_c3RvcnktdGVsbGVyLXNlY3JldC0wMTIzNDU2Nzg5"
CHECK = "/v1/checks/dataforge-docs"


def test_lost_and_renamed_chunks_are_told_apart_and_a_patch_heals_the_canaries(tmp_path: Path) -> None:
    canaries = _some_canaries(tmp_path / "canaries")
    with serving(create_demo()) as demo, Receiver().listening() as receiver:
        environment = {"DEMO_URL": demo, "OPS_WEBHOOK": receiver.url, "OPS_SECRET": SECRET}
        with (
            coalmine(tmp_path, canaries=canaries, environment=environment) as (url, service),
            httpx2.Client(base_url=url, timeout=60) as client,
        ):
            until(lambda: client.get(f"{CHECK}/health").status_code == 200)

            # Some chunks are lost: the worst canaries are asked about after the run, and say so.
            httpx2.post(f"{demo}/fault", json={"kind": "loss", "size": 0.1})
            named = _missing(client, _run(client))
            assert named
            until(lambda: _causes(client, named) == {"missing"})

            # All is well again, then every text is cut anew under other ids.
            httpx2.post(f"{demo}/fault", json={"kind": "none"})
            assert _run(client)["verdict"] == "healthy"
            httpx2.post(f"{demo}/fault", json={"kind": "rechunk"})
            cut = _missing(client, _run(client))
            assert len(cut) > len(named)
            until(lambda: _causes(client, cut) == {"rechunked"})

            # The canaries are of files: what is accepted is a patch, and once it is committed all is well.
            decided = client.post(f"{CHECK}/reanchors", json={"accept": "all"}).json()
            assert {one["key"] for one in decided["to_commit"]} == cut
            for patch in decided["patches"]:
                assert SECRET not in patch["diff"]
                subprocess.run(
                    ["git", "apply", "--unsafe-paths", "--directory=/", "-"],  # noqa: S607 - what people commit with
                    input=patch["diff"].encode(),
                    cwd=tmp_path,
                    check=True,
                )
            apply_canaries(canaries, service.store, service.vault, environment)
            healed = _run(client)
            assert _missing(client, healed) == set()
            assert client.get(f"{CHECK}/reanchors", params={"state": "proposed"}).json()["items"] == []


def _some_canaries(folder: Path) -> Path:
    """Write a part of the shipped canaries: as many as are asked about after one run, some of which will be lost."""
    page = yaml.safe_load((CANARIES / "dataforge.yaml").read_text())
    page["canaries"] = [one for one in page["canaries"] if one["key"] in _KEYS]
    folder.mkdir()
    (folder / "dataforge.yaml").write_text(yaml.safe_dump(page, sort_keys=False))
    return folder


def _run(client: httpx2.Client) -> dict[str, Any]:
    answer = client.post(f"{CHECK}/runs", json={"wait_seconds": 30})
    assert answer.status_code == 200, answer.text
    run: dict[str, Any] = answer.json()
    return run


def _missing(client: httpx2.Client, run: dict[str, Any]) -> set[str]:
    results = client.get(f"/v1/runs/{run['id']}/results", params={"limit": 500}).json()["items"]
    return {one["key"] for one in results if "missing" in one["reasons"]}


def _causes(client: httpx2.Client, keys: set[str]) -> set[str]:
    """Read what was found of these canaries."""
    answers = [client.get(f"{CHECK}/canaries/{key}/diagnosis") for key in keys]
    return {answer.json()["cause"] if answer.status_code == 200 else "nobody asked yet" for answer in answers}
