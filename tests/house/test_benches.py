"""Each command of bench/ can be imported: the slow tier alone runs them, so a rename would break them unseen."""

import importlib.util
import sys
from pathlib import Path

import pytest
from support.repository import ROOT

COMMANDS = sorted((ROOT / "bench").glob("*.py"))


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.name)
def test_what_it_imports_is_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the packages and of bench/harness. Under a name of its own: tests have a folder "faults" too."""
    spec = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert hasattr(module, "main")
