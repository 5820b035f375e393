"""``thalweg plan`` and ``thalweg replay``: plans of this process, and how they are printed."""
