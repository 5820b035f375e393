"""Runs the tasks of a round's methods on several cores (``flowcore.planning.solvers.executor``).

Processes are I/O, so the core starts none. The operator's worker and ``thalweg plan`` give it an executor.
"""
