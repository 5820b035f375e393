"""`thalweg run --extender-*`: what is safe is served, what is not or makes no sense is refused in one sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
from support.cli import thalweg
from thalweg.option_types import HOST_PORT, NamespacedName
from thalweg.run.extender import ExtenderOptions, extender_endpoint, serve_extender
from thalweg_controlplane.certificates import Authority

LOOPBACK, ANYWHERE = "127.0.0.1:8443", "0.0.0.0:8443"


def extender(listen: str, *args: Path, **options: Any) -> ExtenderOptions:
    return ExtenderOptions(HOST_PORT.convert(listen, None, None), *args, **options)


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Path]:
    """A certificate, its key and a CA."""
    authority = Authority(tmp_path, "ca")
    pair = authority.server("server", "127.0.0.1")
    return {"certificate": pair.certificate, "key": pair.key, "client_authority": authority.certificate}


@pytest.mark.parametrize("listen", [LOOPBACK, "localhost:8443", "[::1]:8443", "127.1.2.3:1"])
def test_plain_http_on_loopback(listen: str, made: dict[str, Path]) -> None:
    """Callers on the same machine need no certificate; with one they are verified all the same."""
    assert serve_extender(extender(listen))
    assert serve_extender(extender(listen, made["certificate"], made["key"]))
    assert serve_extender(extender(listen, **made))


@pytest.mark.parametrize("listen", [ANYWHERE, ":8443", "[::]:8443", "10.0.0.1:8443", "thalweg.example:8443"])
def test_everywhere_else_callers_are_verified(listen: str, made: dict[str, Path]) -> None:
    """TLS alone does not say who asks; it takes the CA of the callers."""
    assert serve_extender(extender(listen, **made))
    for options in (extender(listen), extender(listen, made["certificate"], made["key"])):
        with pytest.raises(click.UsageError, match="could steer kube-scheduler"):
            serve_extender(options)


def test_contradictions(made: dict[str, Path], tmp_path: Path) -> None:
    """Each is refused with a sentence that names the options."""
    broken = tmp_path / "broken.crt"
    broken.write_text("what?")
    certificate, key, authority = made["certificate"], made["key"], made["client_authority"]
    for options, says in (
        (ExtenderOptions(None, certificate, key), "need --extender-listen"),
        (extender(LOOPBACK, certificate), "--extender-cert and --extender-key need each other"),
        (extender(LOOPBACK, key=key), "--extender-cert and --extender-key need each other"),
        (extender(LOOPBACK, client_authority=authority), "--extender-client-ca needs"),
        (extender(LOOPBACK, broken, key), "cannot be used"),
        (extender(LOOPBACK, certificate, key, broken), "cannot be used"),
    ):
        with pytest.raises(click.UsageError, match=says):
            serve_extender(options)


@pytest.mark.parametrize("text", ["8443", "127.0.0.1:http", "127.0.0.1:0", "127.0.0.1:65536", "", ":"])
def test_what_is_no_address(text: str) -> None:
    """Every option that takes an address names itself and what it wants."""
    for option in ("--listen", "--extender-listen"):
        done = thalweg("run", option, text)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"Invalid value for '{option}'" in done.stderr
        assert "is not HOST:PORT" in done.stderr


@pytest.mark.parametrize("option", ["--lease", "--extender-endpoints"])
@pytest.mark.parametrize("text", ["thalweg", "a/B", "a/b/c", "/b", "a/"])
def test_what_names_no_object(option: str, text: str) -> None:
    """Every option that takes the name of an object names itself and what it wants."""
    done = thalweg("run", option, text)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Invalid value for '{option}'" in done.stderr
    assert "is not NAMESPACE/NAME" in done.stderr


def test_nothing_is_served_unless_asked_for() -> None:
    """Without options there is no extender."""
    assert serve_extender(ExtenderOptions())


def test_the_command_line_says_so(made: dict[str, Path]) -> None:
    """Exit code 2 and one sentence, before anything is connected to."""
    for words in (
        ("--extender-listen", ANYWHERE),
        ("--extender-listen", LOOPBACK, "--extender-cert", made["certificate"]),
        ("--extender-listen", LOOPBACK, "--extender-client-ca", made["client_authority"]),
        ("--ask-for", "Governed"),
    ):
        done = thalweg("run", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--extender-" in done.stderr
        assert "Traceback" not in done.stderr


def test_the_address_of_the_service_of_the_extender() -> None:
    """The pod's address and the extender's port; without that option nothing is asked for."""
    options = extender("[::]:8443", service=NamespacedName("thalweg-system", "thalweg-extender"))
    for address, family in (("10.1.2.3", "IPv4"), ("fd00::3", "IPv6")):
        found = extender_endpoint(options, {"POD_IP": address})
        assert found is not None
        manifest = found.manifest("uid")
        assert (manifest["addressType"], manifest["endpoints"][0]["addresses"]) == (family, [address])
        assert manifest["ports"] == [{"name": "extender", "port": 8443, "protocol": "TCP"}]
        assert manifest["metadata"]["name"] == "thalweg-extender-leader"
    assert extender_endpoint(extender(LOOPBACK), {}) is None


@pytest.mark.parametrize(
    ("listen", "environment", "problem"),
    [
        (LOOPBACK, {"POD_IP": "10.1.2.3"}, "needs --extender-listen with an address that others reach"),
        (":8443", {}, "needs the environment variable POD_IP"),
        (":8443", {"POD_IP": "here"}, 'POD_IP, "here", is not an IP address'),
        (":8443", {"POD_IP": "127.0.0.1"}, "is not an address that others reach"),
        (":8443", {"POD_IP": "::"}, "is not an address that others reach"),
    ],
)
def test_an_address_that_cannot_be(listen: str, environment: dict[str, str], problem: str) -> None:
    """One sentence says what is wrong."""
    with pytest.raises(click.UsageError, match=re.escape(problem)):
        extender_endpoint(extender(listen, service=NamespacedName("a", "b")), environment)


def test_without_a_listener_there_is_no_endpoint() -> None:
    """The option alone."""
    with pytest.raises(click.UsageError, match="--extender-listen"):
        extender_endpoint(ExtenderOptions(service=NamespacedName("a", "b")), {"POD_IP": "10.1.2.3"})
