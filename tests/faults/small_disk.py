"""A small disk of a trial's own, which can be filled: a file system in memory that only processes told to enter see.

A process holds the mount namespace it is mounted in, so that nothing is left of it when that process is gone, however
it ended. Mounting takes root, as in a container with CAP_SYS_ADMIN.
"""

import os
import pwd
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.faults.harness import Child, FaultError, Processes

_SCRIPT = """
mount -t tmpfs -o size="$3" small "$2" && cp -a "$1/." "$2/" && chown --reference="$1" "$2" &&
chmod --reference="$1" "$2" && mount --bind "$2" "$1" && echo mounted && exec sleep infinity
"""
_BLOCK_BYTES = 4096


@dataclass(kw_only=True)
class SmallDisk:
    """The disk, mounted over a folder whose files it holds."""

    holder: Child
    folder: Path

    def command(self, *words: object, user: str | None) -> list[object]:
        """Return a command that runs this one where the disk is seen, as this user."""
        account = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
        identity = (f"--setuid={account.pw_uid}", f"--setgid={account.pw_gid}")
        return ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt", *identity, *words]

    def fill(self) -> None:
        """Leave no byte of it free."""
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0" * _BLOCK_BYTES)

    def free(self) -> None:
        """Give back what `fill` took."""
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        """Where the filler lies, as seen from outside."""
        return Path(f"/proc/{self.holder.pid}/root{self.folder}") / "filler"


def mount_small_disk(started: Processes, folder: Path, size: str) -> SmallDisk:
    """Put what a folder holds on a disk of this size, for those who enter; raises FaultError where it may not."""
    spare = folder.parent / f"{folder.name}-on-a-small-disk"
    spare.mkdir()
    script = ["sh", "-c", _SCRIPT, "sh", folder, spare, size]
    holder = started.start("small-disk", ["unshare", "--mount", *script])
    started.deadline.until("the disk is mounted", lambda: "mounted" in holder.output or not holder.is_alive)
    if not holder.is_alive:
        raise FaultError(f"no disk can be mounted, which takes root and CAP_SYS_ADMIN: {holder.output}")
    return SmallDisk(holder=holder, folder=folder)
