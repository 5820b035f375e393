"""Every link in the project's Markdown leads to a file that exists, and to a heading that the file has."""

import functools
import re
from pathlib import Path

import pytest
from support.repository import ROOT, pages

PAGES = sorted([*pages(), ROOT / "bench" / "README.md"])
#: Files of the repository that name pages of docs/ in comments, docstrings and messages.
SOURCES = sorted(
    path
    for folder in (
        "flowcore",
        "operator",
        "extender",
        "cli",
        "controlplane",
        "view",
        "bench",
        "tests",
        "crds",
        "rights",
        "charts",
        "image",
        "tools",
    )
    for pattern in ("*.py", "*.yaml", "*.tpl", "NOTES.txt")
    for path in (ROOT / folder).rglob(pattern)
)


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


@functools.cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    """Files and headings that a page links to exist."""
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{target}: there is no such file"
        assert not anchor or anchor in anchors(linked), f"{target}: the page has no such heading"


def test_pages_named_in_the_code() -> None:
    """A page of docs/ that code, manifests or tests name exists; decisions may be named by number."""
    for source in SOURCES:
        for name in re.findall(r"docs/[\w./-]+\.md|docs/decisions/\d{4}", source.read_text()):
            found = list(ROOT.glob(name if name.endswith(".md") else f"{name}-*.md"))
            assert found, f"{source.relative_to(ROOT)} names {name}, which does not exist"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_named_in_pages(page: Path) -> None:
    """A file of the packages or tests in a code span exists."""
    folders = "flowcore|operator|extender|cli|controlplane|tests|bench|crds|rights|tools|image"
    for name in re.findall(rf"`((?:{folders})/[\w./-]*)`", page.read_text()):
        assert (ROOT / name).exists(), f"there is no {name}"


def test_every_page_can_be_reached() -> None:
    """Following links from the README leads to every page."""
    reached, todo = set[Path](), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
            path = target.partition("#")[0]
            if path and "://" not in target:
                linked = (page.parent / path).resolve()
                todo += sorted(linked.glob("*.md")) if linked.is_dir() else [linked]
    assert set(PAGES) <= reached, sorted(str(page.relative_to(ROOT)) for page in set(PAGES) - reached)
