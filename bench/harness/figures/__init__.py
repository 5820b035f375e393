"""docs/reference/performance.md from measurements: what is measured, kept, and shown."""
