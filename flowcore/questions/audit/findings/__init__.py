"""One finding of an audit a module."""
