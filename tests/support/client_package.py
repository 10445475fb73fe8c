"""The client's own distribution, built and unpacked as pip would: its metadata is what makes pytest find the plugin."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.support.processes import ROOT

SOURCE = ROOT / "clients/python"


def client_environment(folder: Path, *more: Path) -> dict[str, str]:
    """Build the client, unpack it into a folder, and give the variables with which a process has it and `coalmine`.

    `more`: folders of modules besides.
    """
    built = folder / "built"
    built.mkdir(parents=True)
    command = [sys.executable, "-m", "flit_core.wheel", "--outdir", str(built), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own sources
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    return {
        "PYTHONPATH": os.pathsep.join(map(str, (folder / "unpacked", *more))),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
