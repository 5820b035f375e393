"""Gangs in a round: what a unit needs, which units are in, and what the methods that know no gangs are given then.

``of_constraints`` and ``units`` say what there is, ``admission`` decides (with ``holding`` for those that waited long),
``choosing`` hands on.
"""
