"""A real Chromium on the real page. A test fails by what the browser complains of, whatever it checks itself."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright
from support.packages import can_install, install
from support.repository import ROOT
from thalweg_controlplane.processes import die_with_parent

_PACKAGES = ("chromium", "fonts-dejavu-core")
#: Milliseconds that the page may take to show something, on a machine that many others use.
PATIENCE = 300_000


def chromium() -> Path:
    """Debian's Chromium; as root it is installed. Where it cannot be had the test is skipped, but never in CI."""
    problem = install(["chromium"], _PACKAGES) if can_install() else f"apt-get install {' '.join(_PACKAGES)}"
    found = shutil.which("chromium")
    return Path(found) if found is not None else _missing(f"no Chromium: {problem}")


def require_page() -> None:
    """Gathers the page's modules if the installation could not. Without them the test is skipped, but never in CI."""
    done = subprocess.run(
        [sys.executable, ROOT / "view" / "build_page.py"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        _missing(f"no page: {done.stderr.strip()}")


def _missing(problem: str) -> Path:
    if os.environ.get("CI") == "true":
        pytest.fail(problem, pytrace=False)
    pytest.skip(problem)


def launch(playwright: Playwright) -> Browser:
    """Chromium without a window."""
    return playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])


@dataclass(slots=True)
class Watched:
    """A page, and what its browser complains of: errors, warnings, violations of the policy, requests to elsewhere.

    Attributes:
        address: of the view, with the token.
        expected: parts of complaints that the test asks for.
    """

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return self.address.partition("/#")[0]

    @property
    def token(self) -> str:
        """The token of the view."""
        return self.address.partition("#token=")[2]

    def open(self, view: str = "flow") -> Page:
        """Opens a view with the token, as a person would: by the printed address, then by a click."""
        self.page.goto(self.address)
        self.page.get_by_role("navigation", name="Views").get_by_role("link", name=view, exact=True).click()
        return self.page

    def unexpected(self) -> list[str]:
        """Complaints that the test did not ask for."""
        return [each for each in self.complaints if not any(part in each for part in self.expected)]


def watched(context: BrowserContext, address: str) -> Watched:
    """A new page of a context."""
    found = Watched(context.new_page(), address)
    page, complaints, origin = found.page, found.complaints, found.origin
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda each: complaints.append(_told(each)) if each.type in ("error", "warning") else None)
    page.on("pageerror", lambda each: complaints.append(str(each)))
    page.on("request", lambda each: None if each.url.startswith(f"{origin}/") else complaints.append(each.url))
    # The browser's list of violations has those too that nothing is printed for.
    page.add_init_script(
        "document.addEventListener('securitypolicyviolation',"
        " (event) => console.error('violation: ' + event.violatedDirective + ' ' + event.blockedURI));"
    )
    return found


def _told(message: ConsoleMessage) -> str:
    return f"{message.text} {message.location['url']}"


@contextmanager
def viewing(*arguments: str | Path) -> Iterator[str]:
    """`thalweg view` with these arguments; the address that it prints."""
    command = [sys.executable, "-m", "thalweg", "view", *map(str, arguments)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only asks the kernel
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
