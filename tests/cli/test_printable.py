"""What others write comes to no terminal as it is: control characters are escaped, whatever shows them."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.cli import Manifest, node, pod, thalweg
from thalweg.terminal.documents import yaml_of
from thalweg.terminal.printable import printable, printable_json, printable_lines

#: Clear the screen, set the title, ring, colours, the same by a character of C1, back to the begin of the line, a line
#: of our own words, the direction of writing turned, and deleted.
ARGUMENT = "\x1b[2J\x1b]0;OWNED\x07\x1b[7mall is well\x1b[0m\x9b31m\x85\r\nall pods have a node\u202enwo\u2066\x7f"
HOSTILE = f"{ARGUMENT}\0"
ESCAPED = r"\x1b[2J\x1b]0;OWNED\x07\x1b[7mall is well\x1b[0m\x9b31m\x85\r\nall pods have a node\u202enwo\u2066\x7f"
#: What a console itself writes: colours, and where the cursor is.
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|[0-9]*[AK])|\r(?=\n|\x1b\[|$)|\n")


def _claim(expression: str) -> Manifest:
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default", "uid": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }


def _slice() -> Manifest:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "n", "pool": pool, "devices": [{"name": "g0"}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}


def _policy(name: str) -> Manifest:
    spec = {"delivery": "Observe", "selects": {"schedulerNames": ["thalweg"], "podSelector": {}}}
    kind = {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Objects that have such texts wherever an API server or a file lets them."""
    annotated = pod("annotated")
    gang = {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": HOSTILE}
    annotated["metadata"]["annotations"] = gang
    measured = pod("measured")
    measured["metadata"]["annotations"] = {"scheduling.thalweg/data": HOSTILE}
    odd = pod(f"odd{HOSTILE}", schedulerName="thalweg", nodeSelector={"a": HOSTILE})
    claiming = pod("claiming", resourceClaims=[{"name": "r", "resourceClaimName": "c"}])
    tainted = node(f"t{HOSTILE}")
    tainted["spec"] = {"taints": [{"key": f"k{HOSTILE}", "effect": "NoSchedule"}]}
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
    text = "".join(f"\\u{ord(each):04x}" for each in HOSTILE)
    claim = _claim(f"quantity('{text}') == quantity('1')")
    running = pod(f"running{HOSTILE}", nodeName="n")
    objects = [
        node("n"), tainted, device_class, _slice(), claim, annotated, measured, odd, claiming, running,
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("dump") / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return path


def _shown(*arguments: str | Path) -> str:
    """All that Python with these arguments writes to a terminal, on both streams."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    environment = {**kept, "TERM": "xterm-256color"}
    command = [sys.executable, *map(str, arguments)]
    found = b""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        while True:
            try:
                found += os.read(ours, 65_536)
            except OSError:  # how Linux ends a pseudo-terminal
                break
    os.close(ours)
    return found.decode()


def _check(text: str) -> None:
    """No character of others does anything."""
    assert "\x1b[7m" not in text
    rest = OURS.sub("", text)
    assert rest.isprintable(), repr(rest)


def _check_lines(text: str) -> None:
    """The same, and no line is theirs."""
    _check(text)
    assert not any(line.strip().startswith("all pods have a node") for line in text.splitlines()), text


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "--pods"),
        ("plan", "--compare"),
        ("why",),
        ("why", "default/claiming", "--nodes"),
        ("why", f"default/odd{ARGUMENT}"),
        ("status",),
        ("headroom",),
        ("audit",),
        ("audit", "-o", "json"),
        ("what-if", "--drain", "n"),
        ("what-if", "--drain", f"x{ARGUMENT}"),
    ],
    ids=range(11),
)  # fmt: skip
def test_commands_escape_what_others_wrote(arguments: tuple[str, ...], dump: Path) -> None:
    """In a pipe, where nothing has colours."""
    name, *words = arguments
    done = thalweg(name, "-f", dump, *words)
    assert done.stdout or done.stderr
    _check_lines(done.stdout)
    _check_lines(done.stderr)


@pytest.mark.parametrize("arguments", [("plan", "--pods"), ("why",), ("status",)], ids=" ".join)
def test_a_terminal_gets_no_commands_but_ours(arguments: tuple[str, ...], dump: Path) -> None:
    """Tables, sentences and warnings beside colours and bars."""
    name, *words = arguments
    _check_lines(_shown("-m", "thalweg", name, "-f", dump, *words))


def test_the_escapes_are_shown(dump: Path) -> None:
    """A reader sees what was written."""
    assert f'"{ESCAPED}' in thalweg("why", "default/annotated", "-f", dump).stdout


def test_documents_mean_the_same(dump: Path) -> None:
    """JSON and YAML have escapes in their texts, and are read as before."""
    texts = [thalweg("plan", "-f", dump, "-o", output).stdout for output in ("json", "yaml")]
    reasons = [{each["pod"]: each["reason"] for each in yaml.safe_load(text)["waiting"]} for text in texts]
    assert reasons[0] == reasons[1]
    assert "default/annotated" in reasons[0]
    assert ARGUMENT.partition("\n")[0] in reasons[0]["default/annotated"]
    for text in texts:
        _check(text)


@pytest.mark.parametrize(
    "written",
    [
        json.dumps({"kind": HOSTILE, "apiVersion": HOSTILE}),
        json.dumps(_policy(f"p{HOSTILE}")),
        json.dumps(pod(f"p{HOSTILE}", HOSTILE)),
        f"not: [yaml{HOSTILE}",
        f"{{{HOSTILE}",
    ],
    ids=range(5),
)  # fmt: skip
def test_errors_and_names_of_files(written: str, tmp_path: Path) -> None:
    """What is wrong with a file, and what it is called. An error is one line."""
    path = tmp_path / ARGUMENT.replace("/", "")
    path.write_text(written)
    output = thalweg("plan", "-f", path).stderr
    assert output
    _check_lines(output)


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_log_lines(log_format: str) -> None:
    """Of the operator, and of libraries: nothing in them does anything."""
    script = f"""
import logging, structlog
from thalweg.terminal.logs import set_up_logging
set_up_logging({log_format!r}, "info")
hostile = {HOSTILE!r}
structlog.get_logger().info("event " + hostile, pod=hostile, **{{"key": [hostile]}})
logging.getLogger("library").warning("said %s", hostile)
try:
    raise ValueError(hostile)
except ValueError:
    structlog.get_logger().exception("failed")
    logging.getLogger("library").exception("failed too")
"""
    shown = _shown("-c", script)
    assert shown.count("all is well") >= 5
    _check(shown)
    _check_lines(shown.partition("Traceback")[0])


@given(st.text())
def test_any_text(text: str) -> None:
    """It is printable, in one line or in as many as it had; documents mean what they meant."""
    assert printable(text).isprintable()
    assert [printable_lines(text).count(mark) for mark in "\n\t"] == [text.count(mark) for mark in "\n\t"]
    encoded = json.dumps([text], ensure_ascii=False).encode(errors="replace")
    escaped = printable_json(encoded)
    assert json.loads(escaped) == json.loads(encoded)
    assert escaped.decode().isprintable()


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.recursive(_TEXTS, lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner)))
def test_any_document_of_yaml(value: Any) -> None:
    """It is printable, and read as it was."""
    text = yaml_of([value])
    assert printable_lines(text) == text
    assert yaml.safe_load(text) == value
