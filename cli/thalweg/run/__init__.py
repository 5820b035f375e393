"""``thalweg run``: the operator with its extender, and the options of both."""
