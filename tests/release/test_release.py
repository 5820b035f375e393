"""What a release is made of, which commit may be released, and what is published: the parts that need no build."""

import io
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import archives
import publish
import pytest
import release
import sbom
import yaml
from support.repository import ROOT

MOMENT = 1_700_000_000


def git(folder: Path, *words: str) -> str:
    """A command of Git, by an author of the tests."""
    name = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    done = subprocess.run(["git", "-C", folder, *name, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with the two files that name the version."""
    for name in ("pyproject.toml", "charts/thalweg/Chart.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((ROOT / name).read_text())
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "First")
    return tmp_path


VERSION = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]  # type: ignore[index]


def test_a_tagged_commit_is_released_as_its_version(clone: Path) -> None:
    """Packages and images have the same version then."""
    git(clone, "tag", f"v{VERSION}")
    assert release.version_of(clone, snapshot=False) == release.Version(VERSION, VERSION)


def _changed(clone: Path) -> None:
    git(clone, "tag", f"v{VERSION}")
    (clone / "forgotten.py").write_text("")


def _other_chart(clone: Path) -> None:
    path = clone / "charts/thalweg/Chart.yaml"
    path.write_text(path.read_text().replace(f"appVersion: {VERSION}", "appVersion: 9.9.9"))
    git(clone, "commit", "--quiet", "--all", "--message", "Chart")
    git(clone, "tag", f"v{VERSION}")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda _: None, f"HEAD has no tag v{VERSION}, and pyproject.toml has the version {VERSION}"),
        (lambda clone: git(clone, "tag", "latest"), f"HEAD has no tag v{VERSION}, and pyproject.toml has the"),
        (lambda clone: git(clone, "tag", "v9.9.9"), "HEAD has the tag v9.9.9, and pyproject.toml has the version"),
        (_changed, "the tree is not clean: ?? forgotten.py"),
        (_other_chart, f"Chart.yaml has the appVersion 9.9.9, pyproject.toml has the version {VERSION}"),
    ],
)
def test_what_is_no_release_is_refused(clone: Path, prepare: Callable[[Path], Any], message: str) -> None:
    """The message names the file, the tag or the version."""
    prepare(clone)
    with pytest.raises(release.CannotRelease, match=re.escape(message)):
        release.version_of(clone, snapshot=False)


def test_a_snapshot_names_its_commit(clone: Path) -> None:
    """It needs no tag, but a clean tree; its version comes before the release's and fits into a tag of an image."""
    commit = git(clone, "rev-parse", "--short=12", "HEAD")
    expected = release.Version(f"{VERSION}.dev0+g{commit}", f"{VERSION}-dev.g{commit}")
    assert release.version_of(clone, snapshot=True) == expected
    (clone / "forgotten.py").write_text("")
    with pytest.raises(release.CannotRelease, match="not clean"):
        release.version_of(clone, snapshot=True)


@pytest.mark.parametrize(
    ("environment", "origin", "name"),
    [
        ({"GITHUB_REPOSITORY": "Acme/Batch"}, "git@github.com:upstream/thalweg.git", "ghcr.io/acme/batch"),
        ({}, "git@github.com:Acme/thalweg.git", "ghcr.io/acme/thalweg"),
        ({}, "https://github.com/acme/thal.weg", "ghcr.io/acme/thal.weg"),
        ({}, "https://notgithub.com/acme/thalweg", "given/name"),
        ({}, "/srv/thalweg", "given/name"),
        ({}, "", "given/name"),
    ],
)
def test_the_image_is_named_after_the_repository(environment: dict[str, str], origin: str, name: str) -> None:
    """The workflow's repository first, then the clone's origin; where neither is known the chart's name stays."""
    assert release.image_name(environment, origin, "given/name") == name


def test_the_sources_name_an_image_that_nobody_can_push() -> None:
    """An owner at GitHub has no two hyphens in a row; a registry takes the name, so the chart is valid."""
    name = release.chart_image(ROOT)
    values = yaml.safe_load((ROOT / "charts/thalweg/values.yaml").read_text())
    assert values["image"]["repository"] == name
    assert "--" in name.split("/")[1]
    assert all(re.fullmatch(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*", part) for part in name.split("/")[1:])


def test_equal_folders_give_equal_archives(tmp_path: Path) -> None:
    """Whoever made the files, whenever, and in which order; what an archive has is what the folder has."""
    for number, order in enumerate(("ab", "ba")):
        folder = tmp_path / str(number) / "in"
        folder.mkdir(parents=True)
        for name in order:
            (folder / name).write_text(name)
            os.utime(folder / name, (number, number))
        (folder / "a").chmod(0o700 if number else 0o755)
        for suffix, compressed in (("tar", False), ("tgz", True)):
            archives.write_tar(folder, tmp_path / f"{number}.{suffix}", MOMENT, compressed=compressed)
    for suffix in ("tar", "tgz"):
        assert (tmp_path / f"0.{suffix}").read_bytes() == (tmp_path / f"1.{suffix}").read_bytes()
        with tarfile.open(tmp_path / f"0.{suffix}") as tar:
            assert [(each.name, each.mode, each.mtime) for each in tar] == [("a", 0o755, MOMENT), ("b", 0o644, MOMENT)]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder like that of a release, with a small chart."""
    chart = {"Chart.yaml": {"version": "1.2.3"}, "values.yaml": {"image": {"repository": "ghcr.io/acme/thalweg"}}}
    return _made(tmp_path, chart)


def _made(folder: Path, chart: dict[str, Any]) -> Path:
    with tarfile.open(folder / "thalweg-1.2.3.tgz", "w:gz") as tar:
        for name, content in chart.items():
            text = json.dumps(content).encode()
            entry = tarfile.TarInfo(f"thalweg/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    (folder / "thalweg-1.2.3-image-amd64.tar").write_bytes(b"image")
    archives.write_sums(folder)
    return folder


def test_checksums_are_as_sha256sum_reads_them(made: Path) -> None:
    """All files but the list itself are in it."""
    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=made, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == ["thalweg-1.2.3-image-amd64.tar: OK", "thalweg-1.2.3.tgz: OK"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda made: (made / "thalweg-1.2.3.tgz").write_bytes(b""),
            "thalweg-1.2.3.tgz is not the file of the release",
        ),
        (lambda made: (made / "thalweg-1.2.3.tgz").unlink(), "thalweg-1.2.3.tgz is missing"),
        (lambda made: (made / "more.whl").write_bytes(b""), "more.whl is not in SHA256SUMS"),
        (lambda made: (made / "SHA256SUMS").unlink(), "SHA256SUMS is missing"),
    ],
)
def test_changed_files_are_not_published(made: Path, change: Callable[[Path], Any], message: str) -> None:
    """Nothing is sent before all checksums are right."""
    change(made)
    with pytest.raises(archives.Changed, match=re.escape(message)):
        publish.commands(made, "helm")


def test_chart_and_image_go_where_the_chart_says(made: Path) -> None:
    """The image to the name that the packaged chart has, with its version; the chart below it."""
    image, chart = publish.commands(made, "helm")
    assert image[-2:] == (f"oci-archive:{made}/thalweg-1.2.3-image-amd64.tar", "docker://ghcr.io/acme/thalweg:1.2.3")
    assert chart == ("helm", "push", made / "thalweg-1.2.3.tgz", "oci://ghcr.io/acme/thalweg/charts")


def test_snapshots_are_not_published(tmp_path: Path) -> None:
    """Their version says what they are."""
    _made(tmp_path, {"Chart.yaml": {"version": "1.2.3-dev.g0123"}, "values.yaml": {"image": {"repository": "x"}}})
    with pytest.raises(publish.CannotPublish, match=r"1\.2\.3-dev\.g0123 is a snapshot"):
        publish.commands(tmp_path, "helm")


@pytest.mark.parametrize(
    ("metadata", "licences"),
    [
        ("License-Expression: MIT OR Apache-2.0\nLicense: other\n", ["MIT OR Apache-2.0"]),
        ("License: BSD\nClassifier: License :: OSI Approved :: MIT License\n", ["BSD"]),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License\n", ["MIT License"]),
        ("License: Copyright 2020\n        All rights\nClassifier: License :: OSI Approved :: X\n", ["X"]),
        ("Name: a\n", []),
    ],
)
def test_licences(metadata: str, licences: list[str]) -> None:
    """The best of what a package says: an SPDX expression, a short name, classifiers; never a whole text."""
    assert sbom.licences_of(HeaderParser().parsestr(metadata)) == licences


LOCK = {"packages": {"node_modules/htm": {"version": "3.1.1", "license": "Apache-2.0", "integrity": "sha512-aGk="}}}


def contents(*names: str, page: frozenset[str] = frozenset({"htm"})) -> sbom.Contents:
    """An image with these packages of Python."""
    parse = HeaderParser().parsestr
    python = tuple(parse(f"Name: {name}\nVersion: 1\nRequires-Dist: Other_One>=2\n") for name in names)
    debian = (parse("Package: libc6\nVersion: 2.41-1\nArchitecture: amd64\n"),)
    return sbom.Contents(f"sha256:{'a' * 64}", debian, "13", python, page)


def test_the_bill_has_what_the_image_has() -> None:
    """Each package with its address, and who needs whom; the same each time."""
    made = [sbom.to_bom(contents("thalweg", "other-one"), "a/b:1", "0" * 64, LOCK, MOMENT) for _ in range(2)]
    assert made[0] == made[1]
    bill = json.loads(made[0])
    assert bill["metadata"]["component"]["version"] == "1"
    assert {each["purl"] for each in bill["components"]} == {
        "pkg:deb/debian/libc6@2.41-1?arch=amd64&distro=debian-13",
        "pkg:npm/htm@3.1.1",
        "pkg:pypi/other-one@1",
        "pkg:pypi/thalweg@1",
    }
    needs = {each["ref"]: each.get("dependsOn") for each in bill["dependencies"]}
    assert needs["pkg:pypi/thalweg@1"] == ["pkg:npm/htm@3.1.1", "pkg:pypi/other-one@1"]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (contents("other-one"), "does not contain Thalweg"),
        (contents("thalweg", page=frozenset()), "does not contain the modules of the web page"),
        (contents("thalweg", page=frozenset({"new"})), "new is in the web page, but not in package-lock.json"),
    ],
)
def test_an_image_that_lacks_something_has_no_bill(image: sbom.Contents, message: str) -> None:
    """So a release without the page, which an image build only warns of, is none."""
    with pytest.raises(sbom.Unlisted, match=message):
        sbom.to_bom(image, "a/b:1", "0" * 64, LOCK, MOMENT)
