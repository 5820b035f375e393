"""Containers by runc, without a daemon: an image's layers as root file system, a user, volumes, a network."""

import asyncio
import json
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support.image import mount_layers, run

#: State of runc, on a file system in memory as runc wants it.
_STATE: Final = Path("/run/thalweg-runc")
_RUNC: Final = ("runc", "--root", str(_STATE))
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a mount inside containers
_NAMESPACES: Final = ("pid", "ipc", "uts", "mount")


@dataclass(frozen=True)
class ContainerSpec:
    """What a container runs.

    Attributes:
        name: unique on this machine.
        layers: of its root file system, the lowest first.
        command: with its arguments.
        environment: NAME=VALUE.
        user, groups: its user and group, and further groups.
        read_only: whether its root file system is.
        mounts: folders and files of this machine by their path inside, and whether they are read-only.
        network: name of its network namespace.
        memory: limit in bytes; 0: none.
    """

    name: str
    layers: Sequence[Path]
    command: Sequence[str]
    environment: Sequence[str]
    user: tuple[int, int]
    groups: Sequence[int]
    read_only: bool
    mounts: Mapping[str, tuple[Path, bool]]
    network: str
    memory: int


@dataclass
class Container:
    """One run of a container; ``start`` once."""

    spec: ContainerSpec
    folder: Path
    log: Path
    _process: asyncio.subprocess.Process | None = field(default=None, init=False)

    async def start(self) -> None:
        """Starts it and returns."""
        shutil.rmtree(self.folder, ignore_errors=True)
        root = await asyncio.to_thread(mount_layers, self.spec.layers, self.folder)
        (self.folder / "config.json").write_text(json.dumps(_config(self.spec, root)))
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*_RUNC, "run", "--bundle", str(self.folder), self.spec.name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    async def wait(self) -> int:
        """Waits for its end; the exit code, 128 and more for signals."""
        assert self._process is not None
        code = await self._process.wait()
        await asyncio.to_thread(self._clean_up)
        return code if code >= 0 else 128 - code

    def kill(self, number: signal.Signals) -> None:
        """Sends a signal to its first process."""
        subprocess.run((*_RUNC, "kill", self.spec.name, str(number.value)), capture_output=True, check=False)

    def _clean_up(self) -> None:
        subprocess.run((*_RUNC, "delete", "--force", self.spec.name), capture_output=True, check=False)
        run("umount", "--lazy", str(self.folder / "rootfs"))


def remove_all() -> None:
    """Ends the containers of a run that was killed."""
    _STATE.mkdir(parents=True, exist_ok=True)
    for name in run(*_RUNC, "list", "--quiet").split():
        subprocess.run((*_RUNC, "delete", "--force", name), capture_output=True, check=False)


def _config(spec: ContainerSpec, root: Path) -> dict[str, Any]:
    """As in the runtime specification of the Open Container Initiative."""
    mounts: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
        {"destination": _SHARED_MEMORY, "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "mode=1777"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro", "nosuid", "nodev"]},
        {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["ro", "nosuid", "nodev"]},
    ]
    for inside, (path, read_only) in sorted(spec.mounts.items()):
        options = ["rbind", "ro" if read_only else "rw", "nosuid", "nodev"]
        mounts.append({"destination": inside, "type": "bind", "source": str(path), "options": options})
    user: dict[str, Any] = {"uid": spec.user[0], "gid": spec.user[1], "additionalGids": list(spec.groups)}
    nothing: list[str] = []
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(root), "readonly": spec.read_only},
        "hostname": spec.name[:60],
        "process": {
            "user": user,
            "args": list(spec.command),
            "env": list(spec.environment),
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": dict.fromkeys(("bounding", "effective", "inheritable", "permitted", "ambient"), nothing),
        },
        "mounts": mounts,
        "linux": {
            "namespaces": [
                *({"type": kind} for kind in _NAMESPACES),
                {"type": "network", "path": f"/run/netns/{spec.network}"},
            ],
            "resources": {"memory": {"limit": spec.memory}} if spec.memory else {},
            "cgroupsPath": f"/thalweg/{spec.name}",
        },
    }
