"""New nodes: of which shape, and how few, would place pods that wait."""
