"""Built-in scenes, and how ``thalweg demo`` shows them."""
