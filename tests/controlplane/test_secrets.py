"""The development control plane's secrets: whoever reads them is in system:masters."""

import stat
from pathlib import Path

import pytest
from thalweg_controlplane.building.build import Binaries
from thalweg_controlplane.cluster import ControlPlane
from thalweg_controlplane.components import Layout, Ports
from thalweg_controlplane.errors import ControlPlaneError

SECRETS = ("tokens.csv", "kubeconfig", "service-account.key")


def binaries(folder: Path, keygen: str) -> Binaries:
    """Binaries of which only keygen does anything."""
    path = folder / "binary"
    path.write_text(f"#!/bin/sh\n{keygen}\n")
    path.chmod(0o700)
    return Binaries(controlplane=path, kwok=path)


def mode(path: Path) -> int:
    """Permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("there", [False, True], ids=["new", "left by an earlier start"])
def test_only_the_owner_can_read_tokens_and_keys(tmp_path: Path, there: bool) -> None:  # noqa: FBT001
    """Files with a token or a key have mode 0600, also where others could read the file that was there before."""
    for name in SECRETS if there else ():
        (tmp_path / name).write_text("old")
        (tmp_path / name).chmod(0o644)
    Layout(tmp_path, Ports(1, 2, 3, 4, 5, 6)).prepare(binaries(tmp_path, "echo key"), None)
    assert {name: mode(tmp_path / name) for name in SECRETS} == dict.fromkeys(SECRETS, 0o600)
    assert (tmp_path / "service-account.key").read_text() == "key\n"
    assert "system:masters" in (tmp_path / "tokens.csv").read_text()


@pytest.mark.asyncio
async def test_only_the_owner_can_enter_a_new_workdir(tmp_path: Path) -> None:
    """A workdir that the control plane makes has mode 0700."""
    workdir = tmp_path / "made" / "here"
    with pytest.raises(ControlPlaneError, match="keygen failed"):
        async with ControlPlane(binaries(tmp_path, "exit 1"), workdir=workdir):
            pass
    assert mode(workdir) == 0o700
