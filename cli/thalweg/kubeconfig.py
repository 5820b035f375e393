"""The cluster that a command works on, from ``--kubeconfig``, ``--context`` and KUBECONFIG."""

from __future__ import annotations

import os
from pathlib import Path

import click


def resolve_kubeconfig(kubeconfig: Path | None, context: str | None) -> tuple[Path | None, str]:
    """The kubeconfig (None: the pod's service account), and where it comes from.

    Raises:
        click.UsageError: a context without a kubeconfig.
    """
    if kubeconfig is not None:
        return kubeconfig, f"--kubeconfig {kubeconfig}"
    named = os.environ.get("KUBECONFIG", "")
    if named:
        return Path(named), f"KUBECONFIG={named}"
    if context is not None:
        raise click.UsageError("--context needs a kubeconfig: give --kubeconfig or set KUBECONFIG")
    return None, "service account of the pod"


def users_kubeconfig(kubeconfig: Path | None) -> tuple[Path | None, str]:
    """The kubeconfig of a person as kubectl finds it, and where it comes from; None: the pod's service account."""
    home = Path.home() / ".kube" / "config"
    if kubeconfig is None and not os.environ.get("KUBECONFIG") and home.exists():
        return home, str(home)
    return resolve_kubeconfig(kubeconfig, None)
