"""Questions to a cluster: what a round would plan, what would change it, and why a pod waits."""
