"""What a benchmark raises when its figures would mean nothing."""


class BenchError(Exception):
    """The run cannot be measured; the message says why."""
