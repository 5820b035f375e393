"""Writes the status of policies and queues, and Events about its conditions."""
