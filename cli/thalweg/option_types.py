"""Option types that click lacks."""

from __future__ import annotations

from typing import NamedTuple

import click

from flowcore.model.selectors import is_dns_subdomain

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Address(NamedTuple):
    """Address to listen on; host "": all addresses."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class AddressType(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.4 alone
    """HOST:PORT; the host may be empty, or an IPv6 address in brackets."""

    name = "HOST:PORT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        if isinstance(value, Address):
            return value
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            self.fail(f'"{value}" is not HOST:PORT, such as 127.0.0.1:8080', param, ctx)
        return Address(host.strip("[]"), int(port))


HOST_PORT = AddressType()


class NamespacedName(NamedTuple):
    """Namespace and name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class NamespacedNameType(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.4 alone
    """NAMESPACE/NAME of an object."""

    name = "NAMESPACE/NAME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> NamespacedName:
        if isinstance(value, NamespacedName):
            return value
        namespace, _, name = str(value).partition("/")
        if not is_dns_subdomain(namespace) or not is_dns_subdomain(name):
            self.fail(f'"{value}" is not NAMESPACE/NAME, such as thalweg-system/thalweg', param, ctx)
        return NamespacedName(namespace, name)


class DnsNameType(click.ParamType):  # type: ignore[type-arg]
    """A DNS name."""

    name = "DNS-NAME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_dns_subdomain(str(value)):
            self.fail(f'"{value}" is not a DNS name, such as thalweg-extender.thalweg-system.svc', param, ctx)
        return str(value)


class MomentType(click.ParamType):  # type: ignore[type-arg]
    """A time as RFC 3339 has it, in seconds since the epoch."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from flowcore.questions.scenario.reading.moment import parse_moment  # noqa: PLC0415 - help must be instant

        if isinstance(value, float):
            return value
        try:
            return parse_moment(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class FeatureGatesType(click.ParamType):  # type: ignore[type-arg]
    """GATE=true or GATE=false, several with commas between, as kube-scheduler's flag has it."""

    name = "GATE=BOOL,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, bool]:
        from flowcore.model.device_gates import ON_SINCE  # noqa: PLC0415 - help must be instant

        if isinstance(value, dict):
            return value
        gates = dict[str, bool]()
        for text in str(value).split(",") if value else ():
            gate, _, word = (part.strip() for part in text.partition("="))
            if gate not in ON_SINCE:
                self.fail(f'"{gate}" is not one of the gates {", ".join(ON_SINCE)}', param, ctx)
            if word.lower() not in ("true", "false"):
                self.fail(f'"{text}" is not {gate}=true or {gate}=false', param, ctx)
            gates[gate] = word.lower() == "true"
        return gates


class DurationType(click.ParamType):  # type: ignore[type-arg]
    """A time span in seconds, minutes, hours or days: 7d."""

    name = "DURATION"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        number, unit = str(value)[:-1], str(value)[-1:]
        if not number.isdecimal() or unit not in _SECONDS or not int(number):
            self.fail(f'"{value}" is not a time span, such as 90m, 12h or 7d', param, ctx)
        return int(number) * _SECONDS[unit]


DURATION = DurationType()
FEATURE_GATES = FeatureGatesType()
MOMENT = MomentType()
NAMESPACED_NAME = NamespacedNameType()
DNS_NAME = DnsNameType()
