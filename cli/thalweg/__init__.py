"""The ``thalweg`` command: thin, and the only place where all rooms meet."""
