"""The ``thalweg`` command: a thin layer, and the only package that imports all others."""
