"""What the last poll found, for the conditions of policies."""

from __future__ import annotations

from dataclasses import dataclass

from flowcore.cluster.usage_samples import STALE_AFTER


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The result of one poll.

    Attributes:
        problems: a sentence for each source that could not be read.
        nodes, measured: nodes of the cluster, and those whose measured load counts.
        unmeasured: a node whose requests count, "" where there is none.
        refused: samples that cannot be used.
        refusal: a sentence about the first of them.
    """

    problems: tuple[str, ...] = ()
    nodes: int = 0
    measured: int = 0
    unmeasured: str = ""
    refused: int = 0
    refusal: str = ""

    def condition(self) -> tuple[str, str, str]:
        """Status, reason and message of the condition UsageMeasured."""
        counts = "Where usage is not measured, requests count."
        if self.problems:
            return "False", "Unavailable", f"{'; '.join(self.problems)}. {counts}"
        if self.measured < self.nodes:
            which = f"{self.nodes - self.measured} of {self.nodes} nodes, such as {self.unmeasured},"
            return "False", "NoSample", f"{which} have no sample of the last {STALE_AFTER:g} s. {counts}"
        if self.refused:
            what = "1 sample is" if self.refused == 1 else f"{self.refused} samples are"
            return "False", "SampleRefused", f"{what} refused: {self.refusal}. The others count."
        return "True", "Measured", f"All {self.nodes} nodes have a sample of the last {STALE_AFTER:g} s."


#: Before the first poll.
NOT_POLLED = "False", "NoSample", "No sample was read yet. Where usage is not measured, requests count."
