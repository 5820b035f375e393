"""What a question is asked of: a dump, the objects of a live cluster, or its operator."""
