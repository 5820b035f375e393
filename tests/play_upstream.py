"""Plays Kubernetes' own tests of scheduling: `python tests/play_upstream.py binder`.

The e2e tests of sig-scheduling, and integration tests of filters, scores and preemption, against kube-scheduler alone,
against our binder (binder) or against kube-scheduler that we steer (steered). It builds them first, once. The exit code
is 1 where a test fails that kube-scheduler alone passes: support/upstream has these by name, and
`kube-scheduler --record` writes them.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import click
from thalweg_controlplane import find_or_build
from thalweg_controlplane.errors import ControlPlaneError

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))  # as for tests
from support.upstream.building import E2E, INTEGRATION, find_or_build_suites
from support.upstream.clusters import Placing
from support.upstream.playing import PASSED, missed, play


@click.command()
@click.argument("placing", type=click.Choice([each.value for each in Placing]))
@click.option("--suite", "chosen", type=click.Choice([E2E, *INTEGRATION]), multiple=True, help="Only this suite.")
@click.option("--only", default="", help="Only tests whose name matches this expression, as `go test -run` takes it.")
@click.option("--without", default="", help="Not the tests whose name matches this expression.")
@click.option("--logs", type=click.Path(path_type=Path), help="Folder for the logs.")
@click.option("--record", is_flag=True, help="Keep the names of those that pass, of all suites.")
def main(placing: str, chosen: tuple[str, ...], only: str, without: str, logs: Path | None, *, record: bool) -> None:
    """Plays the tests, and prints what became of each."""
    if record and (placing != Placing.ALONE or chosen or only or without):
        raise click.UsageError("--record wants kube-scheduler and all tests")
    suites = find_or_build_suites(_say)
    suites = {name: path for name, path in suites.items() if name in (chosen or suites)}
    folder = logs or Path(tempfile.mkdtemp(prefix="thalweg-upstream-"))
    folder.mkdir(parents=True, exist_ok=True)
    results = asyncio.run(play(Placing(placing), find_or_build(_say), suites, folder, only, without))
    for name, result in sorted(results.items()):
        click.echo(f"{result.state:8} {result.seconds:6.1f} s  {name}{f': {result.why}' if result.why else ''}")
    passed = [name for name, result in results.items() if result.state == "passed"]
    click.echo(f"{len(passed)} of {len(results)} passed; logs in {folder}")
    if record:
        PASSED.write_text("".join(f"{name}\n" for name in sorted(passed)))
        return
    worse = {name: result for name, result in missed(results, suites, without).items() if result or not only}
    for name in worse:
        click.echo(f"kube-scheduler alone passes it: {name}")
    sys.exit(bool(worse))


def _say(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    try:
        main()
    except ControlPlaneError as error:
        sys.exit(str(error))
