"""The CustomResourceDefinitions: crds/ at the root is the source, a copy travels in the wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def custom_resource_definitions() -> list[dict[str, Any]]:
    """All CRDs as manifests."""
    packaged = Path(__file__).parent / "crds"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[2] / "crds"
    return [yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))]
