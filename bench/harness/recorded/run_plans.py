"""Runs the command `thalweg` again and again in one process, with the Python of any version: loading it is dear.

Standard input has a JSON list of arguments a line. For each a line is written with the exit code and what the
command printed. Nothing but the command is asked for, so each version of Thalweg can be run so.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from importlib.metadata import entry_points


def main() -> None:
    """Runs what standard input says."""
    (command,) = {each.value: each for each in entry_points(group="console_scripts", name="thalweg")}.values()
    thalweg, answers = command.load(), sys.stdout
    for line in sys.stdin:
        output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        sys.argv, code = ["thalweg", *json.loads(line)], 0
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                thalweg()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(bool(end.code))
        texts = []
        for stream in (output, errors):
            stream.flush()
            texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
        answers.write(json.dumps({"code": code, "output": texts[0], "errors": texts[1]}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
