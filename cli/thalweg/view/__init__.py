"""The view: ``thalweg view`` for files, and the one of ``thalweg run``."""
