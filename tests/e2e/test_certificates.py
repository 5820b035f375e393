"""``thalweg certificates`` on a real API server: first run, second run, several at once, and Secrets of others."""

import asyncio
import base64
import json
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from support.cli import thalweg
from thalweg_certificates import SERVER, Leaf, issue, read_pair, to_pem
from thalweg_controlplane import Api, ControlPlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "thalweg-extender.scheduling.svc"
PARTS = {"ca": "thalweg-extender-ca", "server": "thalweg-extender-tls", "client": "thalweg-extender-client-tls"}
Plane = tuple[ControlPlane, Api]


async def certificates(plane: ControlPlane, namespace: str, *options: str) -> tuple[int, dict[str, bool], str]:
    """Exit code, which Secrets were written, and what it said."""
    words = ("certificates", "--kubeconfig", plane.kubeconfig, "--namespace", namespace, "--dns-name", NAME)
    done = await asyncio.to_thread(thalweg, *words, "-o", "json", *options)
    secrets = json.loads(done.stdout)["secrets"] if done.stdout else []
    return done.returncode, {each["secret"]: each["written"] for each in secrets}, done.stderr


async def make_namespace(api: Api, name: str) -> None:
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def read(api: Api, namespace: str, part: str) -> dict[str, Any]:
    """A Secret, its data decoded."""
    secret = await api.get(f"/api/v1/namespaces/{namespace}/secrets/{PARTS[part]}")
    secret["data"] = {key: base64.b64decode(value) for key, value in secret["data"].items()}
    return dict(secret)


async def check_handshake(api: Api, namespace: str) -> None:
    """Both sides accept each other over TLS, by what is in the Secrets alone."""
    server, client = [(await read(api, namespace, part))["data"] for part in ("server", "client")]
    outside, inside = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.verify_mode = ssl.CERT_REQUIRED
    for context, own in ((inside, server), (outside, client)):
        _load(context, own["tls.crt"], own["tls.key"])
        context.load_verify_locations(cadata=own["ca.crt"].decode())
    buffers = [ssl.MemoryBIO() for _ in range(2)]
    sides = [
        outside.wrap_bio(buffers[0], buffers[1], server_hostname=NAME),
        inside.wrap_bio(buffers[1], buffers[0], server_side=True),
    ]
    waiting = list(sides)
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    assert not waiting
    with pytest.raises(ssl.SSLWantReadError):  # TLS 1.3 tells the client of a refusal after its handshake
        sides[0].read()


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + key)
        file.flush()
        context.load_cert_chain(file.name)


async def test_they_are_made_once_and_then_left_alone(plane: Plane) -> None:
    """Three Secrets of type kubernetes.io/tls, with which both sides accept each other; a second run writes nothing."""
    await make_namespace(plane[1], "made")
    code, written, said = await certificates(plane[0], "made")
    assert (code, said) == (0, "")
    assert written == {f"made/{name}": True for name in PARTS.values()}
    before = {part: await read(plane[1], "made", part) for part in PARTS}
    assert {each["type"] for each in before.values()} == {"kubernetes.io/tls"}
    assert {frozenset(each["data"]) for each in before.values()} == {frozenset({"tls.crt", "tls.key", "ca.crt"})}
    await check_handshake(plane[1], "made")
    code, written, _ = await certificates(plane[0], "made")
    assert (code, set(written.values())) == (0, {False})
    assert {part: await read(plane[1], "made", part) for part in PARTS} == before


async def test_empty_secrets_are_filled_and_those_of_others_are_not(plane: Plane) -> None:
    """An empty Secret of the chart keeps its labels; one that somebody else filled is an error that says what to do."""
    await make_namespace(plane[1], "filled")
    for part, data in (("ca", None), ("server", {"tls.crt": base64.b64encode(b"theirs").decode()})):
        metadata = {"name": PARTS[part], "namespace": "filled", "labels": {"app": "chart"}}
        await plane[1].create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    code, _, said = await certificates(plane[0], "filled")
    assert code == 1
    assert said.startswith("Error: Secret filled/thalweg-extender-tls has data and no label scheduling.thalweg/secret")
    assert (await read(plane[1], "filled", "server"))["data"] == {"tls.crt": b"theirs"}
    authority = await read(plane[1], "filled", "ca")
    assert (authority["type"], authority["metadata"]["labels"]["app"]) == ("Opaque", "chart")
    path = f"/api/v1/namespaces/filled/secrets/{PARTS['server']}"
    await plane[1].patch(path, {"metadata": {"labels": {"scheduling.thalweg/secret": "true"}}})
    assert (await certificates(plane[0], "filled"))[0] == 0
    await check_handshake(plane[1], "filled")


async def test_runs_at_the_same_time_agree(plane: Plane) -> None:
    """Four runs at once: each succeeds, there is one CA, and both sides accept each other."""
    await make_namespace(plane[1], "crowded")
    runs = await asyncio.gather(*(certificates(plane[0], "crowded") for _ in range(4)))
    assert [code for code, *_ in runs] == [0] * 4, runs
    assert sum(written[f"crowded/{PARTS['ca']}"] for _, written, _ in runs) == 1
    await check_handshake(plane[1], "crowded")


async def test_an_old_certificate_is_renewed_alone(plane: Plane) -> None:
    """Of a certificate made 61 of 90 days ago only its own Secret is written, by the same CA."""
    await make_namespace(plane[1], "old")
    await certificates(plane[0], "old")
    ca = (await read(plane[1], "old", "ca"))["data"]
    leaf = Leaf("thalweg-extender", SERVER, timedelta(days=90), (NAME,))
    aged = issue(leaf, read_pair(ca["tls.crt"], ca["tls.key"]), datetime.now(UTC) - timedelta(days=61))
    data = {"tls.crt": to_pem([aged.certificate]), "tls.key": aged.key_pem}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    await plane[1].patch(f"/api/v1/namespaces/old/secrets/{PARTS['server']}", {"data": encoded})
    _, written, _ = await certificates(plane[0], "old")
    assert [name for name, changed in written.items() if changed] == [f"old/{PARTS['server']}"]
    assert (await read(plane[1], "old", "server"))["data"]["tls.crt"] != data["tls.crt"]
    await check_handshake(plane[1], "old")


async def test_a_ca_that_cannot_be_read_is_not_replaced_silently(plane: Plane) -> None:
    """All that trust it would be cut off: the message names the Secret and says what to do."""
    await make_namespace(plane[1], "broken")
    await certificates(plane[0], "broken")
    path = f"/api/v1/namespaces/broken/secrets/{PARTS['ca']}"
    await plane[1].patch(path, {"data": {"tls.key": base64.b64encode(b"rubbish").decode()}})
    code, written, said = await certificates(plane[0], "broken")
    assert (code, written) == (1, {})
    assert said.startswith("Error: Secret broken/thalweg-extender-ca holds no CA that can be read: ")
    assert "Remove its data, and a new CA is made" in said


async def scheduler_config(plane: ControlPlane, *options: str) -> tuple[int, str]:
    """Exit code, and what the command said."""
    words = ("scheduler-config", "--kubeconfig", plane.kubeconfig, "--service", "stored/extender")
    stored = ("--certificates", f"stored/{PARTS['client']}", "--store", "stored/config")
    done = await asyncio.to_thread(thalweg, *words, *stored, *options)
    assert done.stdout == "", "nothing is printed that was to be stored"
    return done.returncode, done.stderr


async def test_the_configuration_is_stored_with_what_the_cluster_knows(plane: Plane) -> None:
    """The Service's address, the name to verify and the certificates; each missing object is an error that names it."""
    api = plane[1]
    await make_namespace(api, "stored")
    assert await scheduler_config(plane[0]) == (1, "Error: Service stored/extender does not exist\n")
    ports = [{"port": 8443, "name": "extender"}]
    metadata = {"name": "extender", "namespace": "stored"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}}
    address = (await api.create(service))["spec"]["clusterIP"]
    code, said = await scheduler_config(plane[0])
    assert code == 1
    assert said.startswith("Error: Secret stored/thalweg-extender-client-tls has no tls.crt, tls.key, ca.crt: run")
    await certificates(plane[0], "stored")
    assert await scheduler_config(plane[0], "--server-name", NAME) == (0, "Secret stored/config written\n")
    assert await scheduler_config(plane[0], "--server-name", NAME) == (0, "Secret stored/config is up to date\n")
    stored = (await api.get("/api/v1/namespaces/stored/secrets/config"))["data"]["scheduler.yaml"]
    (extender,) = yaml.safe_load(base64.b64decode(stored))["extenders"]
    assert extender["urlPrefix"] == f"https://{address}:8443/extender"
    client = (await read(api, "stored", "client"))["data"]
    inside = {"caData": "ca.crt", "certData": "tls.crt", "keyData": "tls.key"}
    assert extender["tlsConfig"].pop("serverName") == NAME
    assert {key: base64.b64decode(value) for key, value in extender["tlsConfig"].items()} == {
        key: client[name] for key, name in inside.items()
    }
