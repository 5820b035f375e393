"""The repository's own files, for tests of its shape and of its words."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("flowcore", "thalweg_cost_models", "operator", "extender", "controlplane", "view", "cli")


def python_files(*folders: str) -> list[Path]:
    """All Python files in these folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def pages() -> list[Path]:
    """All pages that people read."""
    top = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    return sorted([*(ROOT / name for name in top), *(ROOT / "docs").rglob("*.md")])
