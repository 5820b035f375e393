"""The list of what an image really contains (SBOM), in CycloneDX: Debian's, Python's and npm's packages.

Nothing is typed in. Debian's packages come from dpkg's own list in the image, Python's from the metadata of what is
installed there, npm's from the modules of the web page with the versions of package-lock.json.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import tarfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseAcknowledgement
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_METADATA: Final = re.compile(r"/site-packages/[^/]+\.dist-info/METADATA$")
_PAGE_MODULE: Final = re.compile(r"/page/vendor/licences/([^/]+)\.txt$")
_DPKG: Final = "var/lib/dpkg/status"
_OS: Final = "usr/lib/os-release"
#: A longer text in the field License is the licence itself, not its name.
_LONGEST_NAME: Final = 60


class Unlisted(Exception):
    """Something that the image should contain is not found in it."""


@dataclass(frozen=True)
class Contents:
    """What an image contains.

    Attributes:
        digest: of the manifest, ``sha256:...``.
        debian: fields of each package of Debian.
        release: Debian's version, such as ``13``.
        python: metadata of each installed package of Python.
        page: names of npm's packages in the web page.
    """

    digest: str
    debian: tuple[Message, ...]
    release: str
    python: tuple[Message, ...]
    page: frozenset[str]


@dataclass
class _Found:
    files: dict[str, str] = field(default_factory=dict)
    page: set[str] = field(default_factory=set)


def read_contents(layout: Path) -> Contents:
    """Reads the one image of an OCI layout.

    Raises:
        Unlisted: there is no list of Debian's packages in it.
    """
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(_blob(layout, entry["digest"]).read_text())
    found = _Found()
    for layer in manifest["layers"]:
        _read_layer(_blob(layout, layer["digest"]), found)
    for name in (_DPKG, _OS):
        if name not in found.files:
            raise Unlisted(f"the image {entry['digest']} has no file /{name}")
    parse = HeaderParser().parsestr
    packages = [parse(text) for text in found.files.pop(_DPKG).split("\n\n") if text.strip()]
    release = re.search(r'^VERSION_ID="?([^"\n]+)', found.files.pop(_OS), re.MULTILINE)
    return Contents(
        digest=entry["digest"],
        debian=tuple(each for each in packages if str(each["Status"]).endswith(" installed")),
        release=release[1] if release else "",
        python=tuple(parse(text) for _, text in sorted(found.files.items())),
        page=frozenset(found.page),
    )


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def _read_layer(layer: Path, found: _Found) -> None:
    with gzip.open(layer) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            path = member.name.removeprefix("./")
            folder, _, name = path.rpartition("/")
            if name.startswith(".wh."):  # a layer below has it, this one removes it
                gone = f"{folder}/{name.removeprefix('.wh.')}"
                found.files = {
                    each: text for each, text in found.files.items() if not f"{each}/".startswith(f"{gone}/")
                }
            elif match := _PAGE_MODULE.search(f"/{path}"):
                found.page.add(match[1])
            elif (path in (_DPKG, _OS) or _METADATA.search(f"/{path}")) and (content := tar.extractfile(member)):
                found.files[path] = content.read().decode()


def to_bom(contents: Contents, image: str, wheel_sha256: str, lock: Mapping[str, Any], moment: int) -> str:
    """The SBOM, as text of a JSON file.

    Args:
        contents: what the image contains.
        image: name of the image with its tag.
        wheel_sha256: checksum of the wheel of Thalweg.
        lock: content of the page's package-lock.json.
        moment: time of the release, seconds since 1970.

    Raises:
        Unlisted: Thalweg or its web page is not in the image, or a module of the page is not in the lock.
    """
    name, _, version = image.rpartition(":")
    root = Component(
        type=ComponentType.CONTAINER,
        name=name,
        version=version,
        bom_ref=f"{name}@{contents.digest}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=contents.digest.removeprefix("sha256:"))],
    )
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{image}@{contents.digest}"))
    bom.metadata.timestamp = datetime.fromtimestamp(moment, UTC)
    bom.metadata.component = root
    debian = [_of_debian(package, contents.release) for package in contents.debian]
    python = {_name_of(each): _of_python(each) for each in contents.python}
    if "thalweg" not in python:
        raise Unlisted(f"the image {contents.digest} does not contain Thalweg")
    if not contents.page:
        raise Unlisted(f"the image {contents.digest} does not contain the modules of the web page")
    page = [_of_npm(package, lock) for package in sorted(contents.page)]
    thalweg = python["thalweg"]
    thalweg.hashes = [HashType(alg=HashAlgorithm.SHA_256, content=wheel_sha256)]
    for component in (*debian, *python.values(), *page):
        bom.components.add(component)
    bom.register_dependency(root, [thalweg, *debian])
    for each in contents.python:
        needed = [python[needs] for needs in _requirements(each) if needs in python]
        component = python[_name_of(each)]
        bom.register_dependency(component, [*needed, *(page if component is thalweg else ())])
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _of_debian(package: Message, release: str) -> Component:
    qualifiers = {"arch": str(package["Architecture"]), "distro": f"debian-{release}"}
    purl = PackageURL("deb", "debian", str(package["Package"]), str(package["Version"]), qualifiers)
    return _component(purl, ComponentType.LIBRARY, ())


def _of_python(package: Message) -> Component:
    purl = PackageURL("pypi", None, _name_of(package), str(package["Version"]))
    kind = ComponentType.APPLICATION if purl.name == "thalweg" else ComponentType.LIBRARY
    return _component(purl, kind, licences_of(package))


def _of_npm(package: str, lock: Mapping[str, Any]) -> Component:
    entry = lock["packages"].get(f"node_modules/{package}")
    if entry is None:
        raise Unlisted(f"{package} is in the web page, but not in package-lock.json")
    algorithm, _, digest = entry["integrity"].partition("-")
    if algorithm != "sha512":
        raise Unlisted(f"{package} has a checksum of the kind {algorithm} in package-lock.json")
    component = _component(
        PackageURL("npm", None, package, entry["version"]), ComponentType.LIBRARY, [entry["license"]]
    )
    component.hashes = [HashType(alg=HashAlgorithm.SHA_512, content=base64.b64decode(digest).hex())]
    return component


def _component(purl: PackageURL, kind: ComponentType, licences: Iterable[str]) -> Component:
    make = LicenseFactory().make_from_string
    declared = LicenseAcknowledgement.DECLARED
    return Component(
        type=kind,
        name=purl.name,
        version=purl.version,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=[make(each, license_acknowledgement=declared) for each in licences],
    )


def licences_of(package: Message) -> list[str]:
    """What a Python package says of its licence: an SPDX expression, else a short name, else its classifiers."""
    if expression := package["License-Expression"]:
        return [str(expression)]
    name = str(package["License"] or "").strip()
    if name and name.upper() != "UNKNOWN" and "\n" not in name and len(name) <= _LONGEST_NAME:
        return [name]
    classifiers = [str(each) for each in package.get_all("Classifier", [])]
    return [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::")]


def _name_of(package: Message) -> str:
    return canonicalize_name(str(package["Name"]))


def _requirements(package: Message) -> Iterator[str]:
    """Names of all that a Python package may need, extras too."""
    for text in package.get_all("Requires-Dist", []):
        try:
            yield str(canonicalize_name(Requirement(str(text)).name))
        except InvalidRequirement:
            continue
