"""The commands of the command line: one module each, which imports what it needs when the command runs."""
