"""Manifests in the wheel; their sources are crds/ and rights/ at the root of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

#: libyaml where PyYAML has it: a tenth of the time, and `up` and `doctor` read them all.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def custom_resource_definitions() -> list[dict[str, Any]]:
    """All CRDs."""
    return [manifest for path in _files("crds") for manifest in _load(path)]


def rights_by_file() -> dict[str, list[dict[str, Any]]]:
    """The manifests in rights/ by the name of their file, without its suffix."""
    return {path.stem: _load(path) for path in _files("rights")}


def _load(path: Path) -> list[dict[str, Any]]:
    return list(yaml.load_all(path.read_text(), _LOADER))


def _files(folder: str) -> list[Path]:
    packaged = Path(__file__).parent / folder
    source = packaged if packaged.is_dir() else Path(__file__).parents[2] / folder
    return sorted(source.glob("*.yaml"))
