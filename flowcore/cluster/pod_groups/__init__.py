"""What Kubernetes' own PodGroups say of their pods beside their number."""
