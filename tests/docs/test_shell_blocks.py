"""Every command of a shell block of the docs either runs here, or is of a kind that cannot, with the reason."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.cli import Manifest, node, pod, to_yaml
from thalweg.main import main
from thalweg_controlplane.certificates import Authority

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```sh\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
#: A word that stands for something of the reader's.
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}(/|$)|\.\.\.$")

#: Programs that no line of this test runs, and why.
CANNOT_RUN = {
    "kubectl": "needs a cluster of the reader's; tests/e2e applies the YAML blocks, tests/controlplane what `up` says",
    "helm": "needs a cluster with an image; tests/install installs the chart",
    "git": "marks the reader's commit; tests/release does it in a clone",
    "docker": "needs a daemon; tests/install builds the image without one",
    "kind": "needs a daemon",
    "apt-get": "installs packages of the machine",
    "pip": "installs packages; tests/install installs the wheel",
    "python3": "makes the virtual environment of these tests",
    "python": "these tests, benchmarks and builds",
    "ruff": "a check of its own",
    "lint-imports": "a check of its own",
    "uv": "resolves packages of an index",
    "promtool": "tests/chart checks the rules with it",
    "sed": "goes with promtool",
    "openssl": "connects to the reader's extender",
    "curl": "asks the reader's operator",
    "kill": "signals the reader's operator; tests/e2e/test_state_dump.py sends it",
    "mkdir": "makes folders of the machine",
    "echo": "goes with kubectl",
    "eval": "changes the reader's shell; tests/cli/test_sources.py asks for the completions",
    **dict.fromkeys(("sleep", "cut", "grep", "head", "base64", "dot"), "goes with others"),
}
UNKNOWN = "nobody said how to run it, or why not"
#: Commands that ask a live operator where no dump is given.
ASK = {"audit", "plan", "what-if", "why", "headroom", "network"}
#: The same for commands of ours.
CANNOT_RUN_OURS = {
    "dump": "needs a cluster; tests/e2e/test_kubectl.py runs it",
    "demo": "tests/cli/test_demo.py runs it",
    "run": "serves until it is stopped; tests/e2e runs it",
    "up": "serves until it is stopped; tests/controlplane/test_up.py runs it",
    "doctor": "needs a cluster; tests/e2e/test_doctor.py runs it",
    "uninstall": "needs a cluster; tests/e2e/test_uninstall.py runs it",
    "certificates": "needs a cluster; tests/e2e/test_certificates.py runs it",
    "replay": "needs a record of the reader's; tests/e2e/test_state_dump.py makes one",
    "status": "needs a live operator",
    "view": "serves until it is stopped",
}


def commands() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Page, line, and the words of each command of each line of each block."""
    for page in PAGES:
        for indent, block in BLOCK.findall(page.read_text()):
            text = re.sub(rf"^{indent}", "", block, flags=re.MULTILINE).replace("\\\n", " ")
            for line in filter(None, map(str.strip, text.splitlines())):
                if "[OPTIONS]" in line:  # how a command is called
                    continue
                for words in _split(line):
                    yield str(page.relative_to(ROOT)), line, words


def _split(line: str) -> Iterator[tuple[str, ...]]:
    """The words of each command of a line, also of those in $( )."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set(";&|()"):
            if words:
                # Who calls the command writes what follows >.
                yield tuple(words[: words.index(">")] if ">" in words else words)
            words = []
        elif not re.match(r"\w+=\$?$", word):  # a variable
            words.append(word)


def why_not(words: tuple[str, ...]) -> str:
    """Why a command cannot run here; "": it runs."""
    program = words[0].rpartition("/")[2]
    if program.startswith(("kubectl-thalweg", "test_")):
        return "needs a live operator"
    if program != "thalweg":
        return CANNOT_RUN.get(program, UNKNOWN)
    if any(PLACEHOLDER.search(word) for word in words[1:]):
        return "has a placeholder"
    if "-" in words:
        return "reads what another command writes"
    if not {"--kubeconfig", "--context", "--service", "-n", "--account"}.isdisjoint(words):
        return "needs a cluster"
    if words[1] in ASK and "-f" not in words:
        return "needs a live operator"
    return CANNOT_RUN_OURS.get(words[1], "")


FOUND = list(commands())
RUNNABLE = sorted({words[1:] for _, _, words in FOUND if not why_not(words)})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files with the names that the pages use, and a small cluster in them."""
    shop = {"namespace": "shop"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-5d9f8", "uid": "u", "controller": True}
    of_cart = {"ownerReferences": [owner], "labels": {"pod-template-hash": "5d9f8"}}
    gang = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "4"}
    waiting = [
        pod("cart-0", "9", metadata={**shop, "name": "cart-0"}),
        pod("cart", "9", metadata={**shop, **of_cart, "name": "cart-5d9f8-b2c4d"}),
        pod("urgent-0", "9", metadata={**shop, "name": "urgent-0"}),
        # One more than the nodes have room for.
        *(
            pod(f"train-{at}", "3", metadata={"namespace": "ml", "name": f"train-{at}", "annotations": gang})
            for at in range(4)
        ),
    ]
    nodes = [node(name) for name in ("worker-1", "worker-2", "worker-3")]
    for at, each in enumerate(nodes):
        each["metadata"]["labels"]["topology.kubernetes.io/zone"] = "ab"[at % 2]
    shop_object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    namespaces = [shop_object, {**shop_object, "metadata": {"name": "ml"}}]
    policy: Manifest = {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy"}
    policy |= {"metadata": {"name": "web"}, "spec": {"selects": {"podSelector": {}}}}
    dump = {"apiVersion": "v1", "kind": "List", "items": [*nodes, *namespaces, *waiting]}
    (tmp_path / "now.json").write_text(json.dumps(dump))
    (tmp_path / "nodes.json").write_text(json.dumps({"kind": "List", "items": nodes}))
    (tmp_path / "used.json").write_text(json.dumps({"kind": "List", "items": namespaces}))
    (tmp_path / "cluster.yaml").write_text(to_yaml(*nodes, *waiting))
    for name in ("new-pods.yaml", "urgent-pods.yaml"):
        (tmp_path / name).write_text(to_yaml(pod("new", "1")))
    for name in ("policy.yaml", "my-policy.yaml"):
        (tmp_path / name).write_text(to_yaml(policy))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    Authority(tmp_path, "ca")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", RUNNABLE, ids=" ".join)
def test_commands_run(words: tuple[str, ...], folder: Path) -> None:
    """As they are written, on files with the names that they give."""
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == 0, (words, done.stderr, done.exception)


def test_every_command_is_known() -> None:
    """It runs, or its program is in the list of those that cannot."""
    assert [(page, line) for page, line, words in FOUND if why_not(words) == UNKNOWN] == []


def test_reasons_are_used() -> None:
    """Each reason why a command does not run is that of a command that is shown; and enough run."""
    reasons = Counter(why_not(words) for _, _, words in FOUND)
    programs = {words[0].rpartition("/")[2] for _, _, words in FOUND}
    assert CANNOT_RUN.keys() - programs == set()
    assert CANNOT_RUN_OURS.keys() - {words[1] for _, _, words in FOUND if words[0].endswith("thalweg")} == set()
    assert reasons[""] >= 15
