"""A release, made twice of one tagged commit: its files, its bytes, and that each of them works."""

import gzip
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import archives
import pytest
import yaml
from packaging.utils import canonicalize_name
from support.helm import NAMESPACE, Helm
from support.made_release import Made, make_release
from support.repository import ROOT
from thalweg_controlplane import Api

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def one(made: Made, pattern: str) -> Path:
    """The file of the release that matches a pattern."""
    (path,) = made.files.glob(pattern)
    return path


def image_files(made: Made) -> dict[str, bytes]:
    """All files below site-packages of the image, by path."""
    found = {}
    with tarfile.open(one(made, "*-image-*.tar")) as archive:

        def blob(digest: str) -> Any:
            return archive.extractfile(f"blobs/{digest.replace(':', '/')}")

        manifest = json.load(blob(json.load(archive.extractfile("index.json"))["manifests"][0]["digest"]))  # type: ignore[arg-type]
        for layer in manifest["layers"]:
            with gzip.open(blob(layer["digest"])) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
                for entry in tar:
                    folder, mark, name = entry.name.partition("/site-packages/")
                    if mark and folder.endswith("opt/thalweg/lib/python3.13") and entry.isfile():
                        found[name] = tar.extractfile(entry).read()  # type: ignore[union-attr]
    return found


def test_all_files_are_there(made: Made) -> None:
    """With the version in each name, and checksums that are right."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    name = f"thalweg-{made.version}"
    assert {path.name for path in made.files.iterdir()} == {
        f"{name}-py3-none-any.whl",
        f"{name}.tar.gz",
        f"{name}-image-{machine}.tar",
        f"{name}.tgz",
        f"{name}.yaml",
        f"{name}.cdx.json",
        "SHA256SUMS",
    }
    archives.check_sums(made.files)


def test_two_releases_of_one_commit_are_equal(made: Made, tmp_path: Path) -> None:
    """Byte by byte, every file."""
    again = make_release(made.clone, tmp_path / "again", made.image)
    assert (again / archives.SUMS).read_text() == (made.files / archives.SUMS).read_text()


def test_the_wheel_passes_the_demo_in_a_fresh_environment(made: Made, tmp_path: Path) -> None:
    """It brings all that it needs, and the page."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    programs = tmp_path / "venv" / "bin"
    subprocess.run([programs / "pip", "install", "--quiet", one(made, "*.whl")], check=True)
    done = subprocess.run([programs / "thalweg", "demo"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one by one" in done.stdout.lower()
    (page,) = (tmp_path / "venv").glob("lib/*/site-packages/thalweg_view/page/vendor/preact.js")
    assert page.stat().st_size > 0


def test_the_image_holds_the_wheel(made: Made) -> None:
    """Each file of the wheel is in the image, with the same bytes; only what an installer writes differs."""
    installed = image_files(made)
    with zipfile.ZipFile(one(made, "*.whl")) as wheel:
        names = [name for name in wheel.namelist() if not name.endswith(".dist-info/RECORD")]
        assert len(names) > 500
        assert [name for name in names if installed.get(name) != wheel.read(name)] == []


def test_the_bill_is_valid_and_has_the_pinned_packages(made: Made) -> None:
    """CycloneDX's own schema, and for Python just the packages and versions of image/requirements.txt that apply."""
    # Reads grammars for a second: not when tests are collected.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = one(made, "*.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert bill["metadata"]["component"]["name"] == made.image
    listed = {each["purl"].partition("?")[0] for each in bill["components"]}
    pins = re.findall(r"^([\w.-]+)==([^ ;]+)", (ROOT / "image" / "requirements.txt").read_text(), re.MULTILINE)
    pinned = {f"pkg:pypi/{canonicalize_name(name)}@{version}" for name, version in pins}
    python = {each for each in listed if each.startswith("pkg:pypi/")}
    assert python - pinned == {f"pkg:pypi/thalweg@{made.version}"}
    assert len(pinned - python) <= 1  # tzdata may be for Windows alone
    assert any(each.startswith("pkg:deb/debian/libc6@") for each in listed)
    assert any(each.startswith("pkg:npm/preact@") for each in listed)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_yaml_file_is_the_chart_and_an_api_server_takes_it(made: Made, helm: Helm, api: Api) -> None:
    """Object by object in its order, twice; every object that has a namespace says which; hooks are not in it."""
    objects = [each for each in yaml.safe_load_all(one(made, f"thalweg-{made.version}.yaml").read_text()) if each]
    rendered = helm.template({}, "--no-hooks", "--skip-tests", chart=one(made, f"thalweg-{made.version}.tgz"))
    assert objects[0]["kind"] == "Namespace"
    assert objects[1:] == rendered
    assert not any("helm.sh/hook" in each["metadata"].get("annotations", {}) for each in objects)
    assert {each["metadata"]["namespace"] for each in objects if "namespace" in each["metadata"]} == {NAMESPACE}
    for each in [*objects, *objects]:
        await api.apply(each)
    deployment = await api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/thalweg")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{made.image}:{made.version}"


def test_a_published_chart_finds_its_image_without_options(made: Made, helm: Helm, tmp_path: Path) -> None:
    """Chart and image of a fork's release, in its registry: no `--set` is needed, and the image is the released one."""
    publish = [sys.executable, made.clone / "tools" / "publish.py", "--plain-http", made.files]
    subprocess.run(publish, check=True, capture_output=True)
    address = (f"oci://{made.image}/charts/thalweg", "--version", made.version, "--plain-http")
    helm.run("pull", *address, "--destination", tmp_path)
    objects = helm.template({}, chart=tmp_path / f"thalweg-{made.version}.tgz")
    ours = {
        container["image"]
        for each in objects
        if each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
    }
    assert ours == {f"{made.image}:{made.version}"}
    inspect = ["skopeo", "inspect", "--tls-verify=false", "--format", "{{.Digest}}", f"docker://{ours.pop()}"]
    digest = subprocess.run(inspect, check=True, capture_output=True, text=True).stdout.strip()
    bill = json.loads(one(made, "*.cdx.json").read_text())
    assert bill["metadata"]["component"]["bom-ref"] == f"{made.image}@{digest}"
