"""What is remembered of pods that kube-scheduler binds, beside their reservations."""
