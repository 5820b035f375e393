"""What the benchmarks read in metrics."""

from __future__ import annotations

from collections import Counter

from harness.schedulers import Samples


def labelled(samples: Samples, before: Samples, name: str, label: str) -> float:
    """How much the samples of a metric that have this label grew."""
    return sum(
        value - before.get(each, 0.0)
        for each, value in samples.items()
        if each.startswith(f"{name} ") and label in each.split()
    )


def own_p99(samples: Samples) -> float | None:
    """The upper edge, ms, of the histogram's bucket in which the 99th percentile lies."""
    counts: Counter[float] = Counter()
    for name, value in samples.items():
        metric, *labels = name.split()
        if metric == "thalweg_extender_seconds_bucket" and "filter" in labels:
            counts[next(float(label) for label in labels if label[0].isdigit() or label == "+Inf")] += value
    total = max(counts.values(), default=0)
    return next((1000 * edge for edge in sorted(counts) if counts[edge] >= 0.99 * total), None) if total else None
