"""Questions to a cluster and their answers, printed, such as ``headroom``, ``network``, ``what-if`` and ``why``."""
