"""Manifests that travel in the wheel: crds/ and rights/ at the root are the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def custom_resource_definitions() -> list[dict[str, Any]]:
    """All CRDs."""
    return _manifests("crds")


def gate_admission() -> list[dict[str, Any]]:
    """The admission policy that gates pods, and its binding."""
    return [each for each in _manifests("rights") if each["kind"].startswith("MutatingAdmissionPolicy")]


def _manifests(folder: str) -> list[dict[str, Any]]:
    packaged = Path(__file__).parent / folder
    found = packaged if packaged.is_dir() else Path(__file__).parents[2] / folder
    return [each for path in sorted(found.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]
