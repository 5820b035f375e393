"""The commands: one module each, with its options and its help. What a command needs is imported when it runs."""
