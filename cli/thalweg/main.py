"""The command line: the list of commands. Each imports what it needs when it runs, so that help is instant."""

from __future__ import annotations

import click

from thalweg.commands.audit import audit
from thalweg.commands.certificates import certificates
from thalweg.commands.demo import demo
from thalweg.commands.doctor import doctor
from thalweg.commands.dump import dump
from thalweg.commands.headroom import headroom
from thalweg.commands.network import network
from thalweg.commands.old_names import OLD_NAMES
from thalweg.commands.plan import plan
from thalweg.commands.replay import replay
from thalweg.commands.run import run
from thalweg.commands.scheduler_config import scheduler_config
from thalweg.commands.status import status
from thalweg.commands.uninstall import uninstall
from thalweg.commands.up import up
from thalweg.commands.view import view
from thalweg.commands.what_if import what_if
from thalweg.commands.why import why
from thalweg.program import PLANS, Program


@click.group(cls=Program, plans=PLANS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="thalweg", prog_name="thalweg")
def main() -> None:
    """Thalweg, a Kubernetes scheduler that plans all waiting pods at once.

    \b
    Examples:
      thalweg demo                                   see the gain on built-in scenes, without a cluster
      thalweg dump > now.json                        write what plans depend on, of the cluster of your kubeconfig
      thalweg plan -f now.json                       plan the pending pods of your cluster
      thalweg plan -f now.json --compare             see what that gains over one pod after the other
      thalweg audit -f now.json                      see what placement costs, with proof
      thalweg what-if -f now.json --drain worker-3   see what a change would do to the plan
      thalweg why shop/cart-0 -f now.json            say why one pod waits, and what would place it
      thalweg why -f now.json --nodes                see which nodes each waiting pod may use
      thalweg up                                     start a local control plane
      thalweg run --kubeconfig ~/.kube/config        run the operator
      thalweg doctor --kubeconfig ~/.kube/config     check the installation in a cluster
      thalweg scheduler-config                       print the configuration that connects kube-scheduler
    """  # noqa: D301 - click's mark for "leave these lines as they are"


main.add_command(audit)
main.add_command(certificates)
main.add_command(demo)
main.add_command(doctor)
main.add_command(dump)
main.add_command(headroom)
main.add_command(network)
main.add_command(plan)
main.add_command(replay)
main.add_command(run)
main.add_command(scheduler_config)
main.add_command(status)
main.add_command(uninstall)
main.add_command(up)
main.add_command(view)
main.add_command(what_if)
main.add_command(why)
for _old in OLD_NAMES:
    main.add_command(_old)
