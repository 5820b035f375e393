"""Builds the binaries of the control plane and the tools of tests from source, once."""
