"""Which cluster a command works on: what ``--kubeconfig``, ``--context`` and KUBECONFIG say."""

from __future__ import annotations

import os
from pathlib import Path

import click


def chosen_kubeconfig(kubeconfig: Path | None, context: str | None) -> tuple[Path | None, str]:
    """The kubeconfig to use, None for the pod's service account, and what named it.

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
