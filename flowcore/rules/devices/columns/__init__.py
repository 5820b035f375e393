"""Interchangeable devices as columns of room, so that pods which claim them are planned as those that request amounts.

`request_kinds` says what a pod's claims ask for, `selected_devices` which devices a request may get, `column_sets`
which of them are one resource, `conflicts` who waits where not all can be columns, and `with_columns` makes a snapshot
with these columns.
"""
