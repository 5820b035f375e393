"""A folder shows at once what is in it: nine modules at most, unless its files stand side by side."""

from collections import Counter

import pytest
from support.repository import PACKAGES, ROOT, python_files

MAX_MODULES = 9

#: Larger folders in which each file is one more of the same. Who looks for one of them reads the file names only.
ONE_A_FILE: dict[str, str] = {
    "cli/thalweg/commands": "one command a file",
    "cli/thalweg/doctor": "one question of doctor to a cluster a file",
    "flowcore/api": "the reader of one kind of object, or of one part of a spec, a file",
    "flowcore/costs": "one cost model, or one term of a price, a file",
    "flowcore/model": "one kind of value a file",
    "flowcore/planning/methods": "one method of placing pods, or of bounding their cost, a file",
    "flowcore/questions/diagnosis": "one reason why a pod waits a file",
    "flowcore/questions/scenario": "one part of what is known of a cluster, or of what is said of its plan, a file",
    "flowcore/rules/filters": "one filter of kube-scheduler a file",
    "view/thalweg_view/pictures": "one picture a file",
}


def module_counts() -> Counter[str]:
    """Folder -> how many modules it has, without its ``__init__``."""
    return Counter(str(path.parent.relative_to(ROOT)) for path in python_files(*PACKAGES) if path.stem != "__init__")


def test_folders_are_small() -> None:
    """A folder outside the table has nine modules at most."""
    too_large = {
        folder: count for folder, count in module_counts().items() if folder not in ONE_A_FILE and count > MAX_MODULES
    }
    assert not too_large


@pytest.mark.parametrize("folder", ONE_A_FILE)
def test_a_folder_with_an_exception_needs_it(folder: str) -> None:
    """A folder that has become small, or is gone, leaves the table."""
    assert module_counts()[folder] > MAX_MODULES
