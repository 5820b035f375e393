"""Fixtures of tests on a running operator: see support/running_operator.py."""

from support.controlplane import binaries, oracle, shared_plane
from support.operator_logs import pytest_runtest_makereport
from support.running_operator import account, addresses, operator, plane, relay, scene

__all__ = [
    "account",
    "addresses",
    "binaries",
    "operator",
    "oracle",
    "plane",
    "pytest_runtest_makereport",
    "relay",
    "scene",
    "shared_plane",
]
