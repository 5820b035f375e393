"""The room of the extender: kube-scheduler's filter and prioritize calls answered from plans made ahead.

Empty for now: delivery through kube-scheduler follows the batch binder.
"""
