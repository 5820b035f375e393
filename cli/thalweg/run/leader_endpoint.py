"""Services that lead to the operator that leads: the options --extender-endpoints and --view-endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

import click
from thalweg_operator.api.leadership.endpoint_slice import LeaderEndpoint

from thalweg.option_types import Address, NamespacedName


def leader_endpoint(
    what: str, service: NamespacedName, listen: Address | None, environment: Mapping[str, str]
) -> LeaderEndpoint:
    """What a Service is to lead to.

    Args:
        what: "extender" or "view", as the options are called.
        listen: address of --WHAT-listen; None: not given.

    Raises:
        click.UsageError: the option, or the address of the pod in POD_IP, cannot be used.
    """
    hint = f"--{what}-endpoints"
    if listen is None or is_loopback(listen.host):
        raise click.UsageError(f"{hint} needs --{what}-listen with an address that others reach, such as :8443")
    text = environment.get("POD_IP", "")
    advice = "take it from the field status.podIP of the pod"
    if not text:
        raise click.UsageError(f"{hint} needs the environment variable POD_IP, the address of this pod: {advice}")
    try:
        address = ip_address(text)
    except ValueError as error:
        raise click.UsageError(f'the environment variable POD_IP, "{text}", is not an IP address: {advice}') from error
    if address.is_loopback or address.is_unspecified or address.is_link_local or address.is_multicast:
        raise click.UsageError(
            f'the environment variable POD_IP, "{text}", is not an address that others reach: {advice}'
        )
    return LeaderEndpoint(*service, address, listen.port, what)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
