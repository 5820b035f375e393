"""``kubectl thalweg``: the commands that ask a cluster, as a plugin of kubectl; and their completion for its shell.

kubectl runs ``kubectl-thalweg`` with the words that follow, and ``kubectl_complete-thalweg`` to complete them.
"""

from __future__ import annotations

import sys
from typing import Final

import click
from click.shell_completion import ShellComplete

from thalweg.commands.audit import audit
from thalweg.commands.dump import dump
from thalweg.commands.headroom import headroom
from thalweg.commands.network import network
from thalweg.commands.old_names import OLD_TOP
from thalweg.commands.plan import plan
from thalweg.commands.status import status
from thalweg.commands.what_if import what_if
from thalweg.commands.why import why
from thalweg.program import PLANS, Program
from thalweg.terminal.printable import printable

#: What tells cobra, kubectl's library, that no file names follow, and that they may.
_NO_FILES: Final = ":4"
_FILES: Final = ":0"


@click.group(cls=Program, plans=PLANS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="thalweg", prog_name="kubectl-thalweg")
def main() -> None:
    """Ask Thalweg's operator: why a pod waits, what would help, what is planned, and what placement costs.

    Kubeconfig, context and namespace are those of kubectl. The operator answers where it has a view: view.enabled in
    the chart. Without one the command lists the objects and plans here, as with --direct. Options follow the command:
    kubectl thalweg plan --context staging.

    \b
    Examples:
      kubectl thalweg why cart-0 -n shop
      kubectl thalweg plan -n shop
      kubectl thalweg what-if --drain worker-3
      kubectl thalweg status
      kubectl thalweg status --watch
    """  # noqa: D301 - click's mark for "leave these lines as they are"


for _command in (why, plan, what_if, headroom, network, audit, status, dump, OLD_TOP):
    main.add_command(_command)


def complete() -> None:
    """Prints the completions of the last word of the arguments, as kubectl wants them."""
    *words, last = sys.argv[1:] or [""]
    completions = ShellComplete(main, {}, "kubectl-thalweg", "").get_completions(words, last)
    for completion in completions:
        if completion.type == "plain":
            click.echo("\t".join(map(printable, filter(None, (completion.value, completion.help)))))
    click.echo(_FILES if any(each.type == "file" for each in completions) else _NO_FILES)
