"""Changes that may place waiting pods, found without a plan."""
