"""Questions to a cluster and their answers, printed: ``dump``, ``headroom``, ``network``, ``status``, ``what-if``, ``why``."""
