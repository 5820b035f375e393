"""Asks kube-scheduler of two versions for its defaults and keeps them: `python tests/record_scheduler_defaults.py`."""

import json

from beside_kube_scheduler import STORED
from support.minor_versions import VERSIONS
from support.scheduler_defaults import scheduler_defaults
from thalweg_controlplane import Oracle, find_or_build


def main() -> None:
    """Writes the file."""
    found = {}
    for version in VERSIONS:
        with Oracle(find_or_build(print, version)) as oracle:
            found[version] = scheduler_defaults(oracle)
    STORED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
