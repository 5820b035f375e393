"""What a round is asked for: groups of like pods, groups that are placed whole, and what placing them costs."""
