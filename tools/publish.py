"""Publishes the image and the chart of a release: ``python tools/publish.py dist``.

They go where the chart of the release says that its image is: the image to that name, the chart to ``charts/thalweg``
below it. So an installation of that chart finds the image. It needs skopeo and Helm, both logged in.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import archives
import yaml
from thalweg_controlplane import BuildError, find_or_build_tool

_CHART: Final = "thalweg"


class CannotPublish(Exception):
    """The release cannot be published; the message says why."""


def commands(folder: Path, helm: str | Path, *, plain_http: bool = False) -> list[Sequence[str | Path]]:
    """The commands that publish the image and the chart of a release.

    Args:
        folder: the files of a release.
        helm: the executable.
        plain_http: whether the registry speaks HTTP, as one for tests does.

    Raises:
        archives.Changed: a file is not the one that the release made.
        CannotPublish: the folder has not one chart and one image, or it is a snapshot.
    """
    archives.check_sums(folder)
    charts, images = list(folder.glob("*.tgz")), list(folder.glob("*-image-*.tar"))
    if len(charts) != 1 or len(images) != 1:
        raise CannotPublish(f"{folder} has {len(charts)} charts and {len(images)} images; a release has one of each")
    version = str(_read(charts[0], "Chart.yaml")["version"])
    if "-" in version:
        raise CannotPublish(f"{version} is a snapshot, and snapshots are not published")
    name = str(_read(charts[0], "values.yaml")["image"]["repository"])
    verified = ("--dest-tls-verify=false",) if plain_http else ()
    plain = ("--plain-http",) if plain_http else ()
    image = ("skopeo", "copy", "--preserve-digests", *verified)
    return [
        (*image, f"oci-archive:{images[0]}", f"docker://{name}:{version}"),
        (helm, "push", charts[0], f"oci://{name}/charts", *plain),
    ]


def _read(chart: Path, name: str) -> dict[str, Any]:
    """A YAML file of a chart's package."""
    with tarfile.open(chart) as tar:
        content = tar.extractfile(f"{_CHART}/{name}")
        if content is None:
            raise CannotPublish(f"{chart} has no file {name}")
        return dict(yaml.safe_load(content.read()))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the files that tools/release.py made")
    parser.add_argument("--plain-http", action="store_true", help="the registry speaks HTTP")
    arguments = parser.parse_args()
    try:
        helm = shutil.which("helm") or find_or_build_tool("helm", print)
        todo = commands(arguments.folder, helm, plain_http=arguments.plain_http)
    except (CannotPublish, archives.Changed, BuildError) as error:
        sys.exit(f"Error: {error}")
    for command in todo:
        done = subprocess.run(command, check=False)  # noqa: S603 - our own argument list, no shell
        if done.returncode != 0:
            sys.exit(f"Error: `{' '.join(map(str, command))}` ended with exit code {done.returncode}")


if __name__ == "__main__":
    main()
