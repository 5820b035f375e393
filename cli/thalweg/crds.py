"""Manifests in the wheel; their sources are crds/ and rights/ at the root of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def custom_resource_definitions() -> list[dict[str, Any]]:
    """All CRDs."""
    return [manifest for path in _files("crds") for manifest in yaml.safe_load_all(path.read_text())]


def rights_by_file() -> dict[str, list[dict[str, Any]]]:
    """The manifests in rights/ by the name of their file, without its suffix."""
    return {path.stem: list(yaml.safe_load_all(path.read_text())) for path in _files("rights")}


def _files(folder: str) -> list[Path]:
    packaged = Path(__file__).parent / folder
    source = packaged if packaged.is_dir() else Path(__file__).parents[2] / folder
    return sorted(source.glob("*.yaml"))
