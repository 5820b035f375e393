"""Small rounds: who leaves for several urgent pods is decided for all of these together."""

from flowcore.planning.evictions.joint.joint_search import JointSearch
from flowcore.planning.evictions.joint.node_options import Item
from flowcore.planning.evictions.joint.small_rounds import is_small, preempting

__all__ = ["Item", "JointSearch", "is_small", "preempting"]
