"""The command ``thalweg demo``."""

from __future__ import annotations

import click


@click.command()
@click.option("--all", "every", is_flag=True, help="Show all scenes. Default: the first five.")
def demo(every: bool) -> None:  # noqa: FBT001 - click's flags
    """Show what planning all pods at once gains.

    The demo has built-in scenes, needs no cluster and takes a few seconds. It plans each scene twice, all pods at once
    and pod by pod, and shows both results side by side. The last line of a scene is the gain, computed from the scene's
    table.

    \b
    Examples:
      thalweg demo
      thalweg demo --all
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.demo.show import show

    show(every=every)
