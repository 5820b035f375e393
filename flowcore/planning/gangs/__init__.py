"""Which gangs a round may begin, and which of their pods get which nodes.

Pods that share a claim are a gang too, and some gangs wait for room of later pods.
"""
