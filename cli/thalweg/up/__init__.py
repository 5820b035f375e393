"""``thalweg up``: a local control plane with the operator, its nodes, and what is installed in it."""
