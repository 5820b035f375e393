"""The files of the web page, read once: what is not among them is not served."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

#: Modules from npm that the build gathers into the page; not in the repository.
VENDOR: Final = "vendor"
NOT_GATHERED: Final = (
    "the page's modules from npm are missing: run `pip install .` again where the npm registry can be reached. "
    "Commands and the HTTP API work without them"
)
#: The operating system's own table of types may say anything.
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file.

    Attributes:
        tag: changes with the content.
    """

    content_type: str
    content: bytes
    tag: str


def read_page(folder: Traversable | None = None) -> dict[str, PageFile]:
    """The files of the page by their path, such as ``/app.js``; index.html is ``/``. Empty without the vendor files.

    Args:
        folder: None: the page of this package.
    """
    root = files("thalweg_view") / "page" if folder is None else folder
    if not (root / VENDOR).is_dir() or not (root / "index.html").is_file():
        return {}
    page_files: dict[str, PageFile] = {}
    _collect(root, "/", page_files)
    page_files["/"] = page_files["/index.html"]
    return page_files


def _collect(folder: Traversable, prefix: str, files: dict[str, PageFile]) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            _collect(entry, f"{prefix}{entry.name}/", files)
        elif entry.is_file():
            content = entry.read_bytes()
            suffix = entry.name[entry.name.rfind(".") :]
            kind = _TYPES.get(suffix, "application/octet-stream")
            files[prefix + entry.name] = PageFile(kind, content, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
