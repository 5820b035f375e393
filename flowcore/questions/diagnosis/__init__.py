"""Why a pod waits, and what would place it."""
