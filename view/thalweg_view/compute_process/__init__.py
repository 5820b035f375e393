"""The compute process of a view, its client, and the messages between them."""
