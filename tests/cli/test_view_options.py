"""`thalweg run --view-*`: what is safe is served, what is not or makes no sense is refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from thalweg.option_types import HOST_PORT, NamespacedName
from thalweg.view.view_live import ViewOptions, serve_view, view_endpoint
from thalweg_controlplane.certificates import Authority
from thalweg_operator.api.watches.catch_up import OwnPod

SERVICE = NamespacedName("thalweg-system", "thalweg-view")
POD = OwnPod("thalweg-system", "thalweg-0")


def view(listen: str, *args: Any, **options: Any) -> ViewOptions:
    return ViewOptions(HOST_PORT.convert(listen, None, None), *args, **options)


def tls_of(options: ViewOptions) -> Any:
    """What makes the TLS context of a view; None: it speaks plain HTTP."""
    return serve_view(options).keywords["tls"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("listen", ["127.0.0.1:8444", "localhost:8444", "[::1]:8444"])
def test_plain_http_on_loopback_only(listen: str) -> None:
    """Tokens go over no network in the clear."""
    assert tls_of(view(listen)) is None


@pytest.mark.parametrize("listen", [":8444", "0.0.0.0:8444", "10.0.0.1:8444", "thalweg.example:8444"])
def test_everywhere_else_it_is_https(listen: str, tmp_path: Path) -> None:
    """Without files by a certificate that the process makes itself, the same for as long as it runs."""
    context = tls_of(view(listen))
    assert context() is context()
    pair = Authority(tmp_path, "ca").server("server", "127.0.0.1")
    given = tls_of(view(listen, pair.certificate, pair.key))
    assert given() is given()


def test_contradictions(tmp_path: Path) -> None:
    """Each is refused with a sentence that names the options."""
    pair = Authority(tmp_path, "ca").server("server", "127.0.0.1")
    broken = tmp_path / "broken.crt"
    broken.write_text("what?")
    for options, says in (
        (ViewOptions(None, pair.certificate, pair.key), "need --view-listen"),
        (ViewOptions(None, service=SERVICE), "need --view-listen"),
        (view(":1", pair.certificate), "--view-cert and --view-key need each other"),
        (view(":1", key=pair.key), "--view-cert and --view-key need each other"),
        (view(":1", broken, pair.key), "broken.crt"),
    ):
        with pytest.raises(click.UsageError) as refused:
            serve_view(options)
        assert says in str(refused.value.format_message())


def test_the_service_needs_a_pod_that_the_proxy_leads_to() -> None:
    """Its own pod and an address that others reach; without the option the Service is left alone."""
    environment = {"POD_IP": "10.1.2.3"}
    assert view_endpoint(view(":8444"), {}, None) is None
    endpoint = view_endpoint(view(":8444", service=SERVICE), environment, POD)
    assert endpoint is not None
    made = endpoint.manifest("uid")
    assert (made["kind"], made["metadata"]["name"]) == ("Endpoints", "thalweg-view")
    (subset,) = made["subsets"]
    (address,) = subset["addresses"]
    assert address["ip"] == "10.1.2.3"
    assert address["targetRef"] == {"kind": "Pod", "namespace": "thalweg-system", "name": "thalweg-0"}
    assert [(port["name"], port["port"]) for port in subset["ports"]] == [("https", 8444)]
    for options, given, pod, says in (
        (view("127.0.0.1:8444", service=SERVICE), environment, POD, "an address that others reach"),
        (view(":8444", service=SERVICE), {}, POD, "POD_IP"),
        (view(":8444", service=SERVICE), environment, None, "POD_NAMESPACE and POD_NAME"),
    ):
        with pytest.raises(click.UsageError, match=says):
            view_endpoint(options, given, pod)
