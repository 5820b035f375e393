"""docs/reference has every message that the code may write into a pod, a policy or an Event, and none besides."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
#: Texts that no pod, policy or Event shows: log lines, the command line, help of metrics, words of kube-scheduler's
#: library for in-tree volumes, and a table with a page of its own (cached-verdicts.md).
NOT_MESSAGES = (
    "flowcore/planning/methods/table.py",
    "operator/thalweg_operator/api",
    "operator/thalweg_operator/app.py",
    "operator/thalweg_operator/draining.py",
    "operator/thalweg_operator/observability/audits",
    "operator/thalweg_operator/observability/find_tracer.py",
    "operator/thalweg_operator/health.py",
    "operator/thalweg_operator/metrics.py",
    "operator/thalweg_operator/settings.py",
    "operator/thalweg_operator/planning/reports/record.py",
    "operator/thalweg_operator/policies/handlers.py",
    "operator/thalweg_operator/policies/removal.py",
    "operator/thalweg_operator/policies/resync.py",
    "extender/thalweg_extender/certificates.py",
    "extender/thalweg_extender/listener.py",
    "extender/thalweg_listener",
    "flowcore/planning/problem/bounds/bound_notes.py",
    "flowcore/questions/audit",
    "flowcore/questions/scenario",
    "extender/thalweg_certificates",
    "extender/thalweg_extender/server.py",
    "extender/thalweg_extender/wire.py",
    "flowcore/api/csi_migration.py",
    "flowcore/api/priority_classes.py",
    "flowcore/api/storage_objects.py",
    "flowcore/api/volumes.py",
    "flowcore/planning/problem/left_at_least.py",
    "flowcore/rules/verdicts/invalidation.py",
    # Problems of selectors, which stand in a longer message, and fields of objects that cannot be read.
    "flowcore/rules/devices/cel",
    "flowcore/rules/devices/allocation/pools.py",
    "flowcore/api/resource_claims.py",
    "flowcore/api/resource_slices.py",
    "flowcore/cluster/saved_state.py",
    "flowcore/questions/diagnosis",
    "flowcore/planning/solvers",
    "operator/thalweg_operator/reservations/ledger/transitions.py",
)
#: Words of the code that no user reads.
INTERNAL = {
    ": ",
    "Scheduling is blocked due to non-empty scheduling gates",
    "a pod that is gone",
    "first slots",
    "let through",
    "namespace {}",
    "not in sync yet",
    "not ready after {} s",
    "not started",
    "own terms",
    "phase of PodGroups",
    "policy status",
    "queue status",
    "running pods' terms",
    "scheduling gates",
    "the worker",
    "the worker process cannot be started: {}",
    "the worker process ended before it was ready",
    "waiting pods",
    "with CSINode",
}
#: A message has at least so many letters that are no value.
LETTERS = 7


def template(node: ast.expr) -> str | None:
    """A string or f-string; values are ``{}``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def unread(tree: ast.Module) -> Iterator[int]:
    """Identities of strings that are docstrings, parts of f-strings, or arguments of a log line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            yield id(node.value)
        elif isinstance(node, ast.JoinedStr):
            yield from (id(part) for part in node.values)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Log":
            yield from (id(each) for each in ast.walk(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if isinstance(of, ast.Name) and of.id in {"_log", "log"}:
                yield from (id(each) for each in ast.walk(node))


def messages() -> dict[str, str]:
    """Sentences of the code with the module that has them."""
    found = {}
    for folder in ("flowcore", "operator", "extender"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            tree = ast.parse(path.read_text())
            skipped = set(unread(tree))
            for node in ast.walk(tree):
                text = template(node) if isinstance(node, ast.expr) and id(node) not in skipped else None
                if text and " " in text.strip() and letters(text) >= LETTERS:
                    found[text.strip()] = name
    return found


def letters(text: str) -> int:
    return sum(map(str.isalpha, text.replace("{}", "")))


def pattern(text: str) -> re.Pattern[str]:
    """What a message of the code matches in a page."""
    core = re.sub(r"^(\{\}\W*\s)+|[.\s]+$", "", text)
    return re.compile(".*?".join(re.escape(part) for part in core.split("{}")))


def code_spans(page: Path) -> list[str]:
    text = page.read_text()
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


@pytest.fixture(scope="module")
def code() -> dict[str, str]:
    """`messages`, read by the one process that runs this file, and not by each that collects it."""
    return messages()


def test_every_message_is_documented(code: dict[str, str]) -> None:
    """A message that the code may write is in a code span of docs/reference, its values in angle brackets."""
    spans = "\n".join(span for page in sorted(REFERENCE.glob("*.md")) for span in code_spans(page))
    missing = [
        f"{where}: {text}"
        for text, where in code.items()
        if not where.startswith(NOT_MESSAGES) and text not in INTERNAL and pattern(text).search(spans) is None
    ]
    assert not missing, "not in docs/reference/reasons.md:\n" + "\n".join(missing)


@pytest.mark.parametrize("page", ["reasons.md"])
def test_every_documented_message_exists(page: str, code: dict[str, str]) -> None:
    """A message in the page's code spans is put together of messages of the code."""
    patterns = [pattern(text) for text in code]
    stale = [
        span
        for span in code_spans(REFERENCE / page)
        if span.count(" ") > 2 and not any(each.search(span) for each in patterns)
    ]
    assert not stale, "no module says:\n" + "\n".join(stale)
