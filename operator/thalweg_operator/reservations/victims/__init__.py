"""Running pods that leave their nodes, and where their replacements go."""
