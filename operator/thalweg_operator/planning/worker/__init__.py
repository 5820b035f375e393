"""The worker process that computes rounds."""
