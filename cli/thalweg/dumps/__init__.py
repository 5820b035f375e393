"""Dumps and other files: found, read, and checked as the API server would."""
