"""``thalweg scheduler-config``: kube-scheduler's configuration for the extender."""
