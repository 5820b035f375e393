"""Writes to claims of pods that we bind: a module for each kind of claim."""
