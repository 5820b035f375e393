"""Questions to a cluster and their answers, printed: ``dump``, ``headroom``, ``status``, ``what-if``, ``why``."""
