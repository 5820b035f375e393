"""The ways of a network from its pods to nodes, and which of them a pod may take."""
