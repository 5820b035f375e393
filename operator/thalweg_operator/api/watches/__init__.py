"""Lists and watches of the API server."""
