"""Networks as linear and integer programs, of all their ways or of those that are worth something."""
