"""Pending pods grouped into classes: the supplies of the network."""

from flowcore.classes.groups import Group, group

__all__ = ["Group", "group"]
