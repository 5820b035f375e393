"""Runs the command `thalweg` again and again, with the Python of any version: loading it is dear.

Standard input has a JSON list of arguments a line. For each a line is written with the exit code and what the
command printed. Nothing but the command is asked for, so each version of Thalweg can be run so. Each command is a
forked process of its own: what it leaves behind ends with it.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryFile


def main() -> None:
    """Runs what standard input says."""
    (command,) = {each.value: each for each in entry_points(group="console_scripts", name="thalweg")}.values()
    thalweg = command.load()
    for line in sys.stdin:
        with TemporaryFile() as output, TemporaryFile() as errors:
            child = os.fork()
            if not child:
                with Path(os.devnull).open("rb") as nothing:
                    for descriptor, file in enumerate((nothing, output, errors)):
                        os.dup2(file.fileno(), descriptor)
                sys.argv = ["thalweg", *json.loads(line)]
                sys.exit(thalweg())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode())
        sys.stdout.write(json.dumps({"code": code, "output": texts[0], "errors": texts[1]}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
