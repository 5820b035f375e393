"""HyperNodes of Volcano: which nodes are in which, and what gangs ask of their tiers."""
