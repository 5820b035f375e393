"""Annotations and labels of pods that share GPUs by KAI-Scheduler.

Source: KAI-Scheduler pkg/binder/plugins/gpusharing/gpu-request (the values that its admission allows).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flowcore.api.pod_objects import WirePodAnnotations
from flowcore.model.shared_gpus import KAI_FRACTION, KAI_GROUP, KAI_MEMORY, KAI_RESERVATIONS

#: Characters of a value that are read, and shown.
_LONGEST: Final = 32


def asks_kai(annotations: WirePodAnnotations | None) -> str:
    """Why a pod with these annotations is not planned; "": it asks KAI-Scheduler for nothing."""
    if annotations is None:
        return ""
    if annotations.gpu_fraction:
        return _asks(KAI_FRACTION, annotations.gpu_fraction)
    return _asks(KAI_MEMORY, annotations.gpu_memory) if annotations.gpu_memory else ""


def holds_shared_gpu(namespace: str, labels: Mapping[str, str] | None) -> bool:
    """Whether a pod holds a GPU that pods of KAI-Scheduler share. Its label alone says nothing: anybody may set it."""
    return namespace == KAI_RESERVATIONS and labels is not None and KAI_GROUP in labels


def _asks(annotation: str, value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    if annotation == KAI_FRACTION:
        problem = "" if _is_fraction(text) else "no number between 0 and 1"
    else:
        problem = "" if _is_mebibytes(text) else "no whole number above zero"
    asks = f"its annotation {annotation} asks for a share of a GPU, "
    return asks + (f'and "{text[:_LONGEST]}" is {problem}' if problem else "which only KAI-Scheduler gives")


def _is_fraction(text: str) -> bool:
    try:
        return len(text) <= _LONGEST and 0.0 < float(text) < 1.0
    except ValueError:
        return False


def _is_mebibytes(text: str) -> bool:
    return len(text) <= _LONGEST and text.isascii() and text.isdigit() and int(text) > 0
