"""Manifests in the wheel; their sources are crds/ and rights/ at the root of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def custom_resource_definitions() -> list[dict[str, Any]]:
    """All CRDs."""
    return _manifests("crds")


def gate_admission() -> list[dict[str, Any]]:
    """The admission policy that gates pods, and its binding."""
    return [manifest for manifest in _manifests("rights") if manifest["kind"].startswith("MutatingAdmissionPolicy")]


def _manifests(folder: str) -> list[dict[str, Any]]:
    packaged = Path(__file__).parent / folder
    source = packaged if packaged.is_dir() else Path(__file__).parents[2] / folder
    return [manifest for path in sorted(source.glob("*.yaml")) for manifest in yaml.safe_load_all(path.read_text())]
