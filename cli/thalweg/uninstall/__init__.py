"""``thalweg uninstall``: hands pods and what creates them back to kube-scheduler."""
