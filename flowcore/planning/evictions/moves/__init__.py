"""Who leaves a node and comes to another one: for waiting pods, for a rule that broke, for gain."""
