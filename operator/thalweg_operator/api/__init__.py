"""The Kubernetes API: client, watches, writes."""
