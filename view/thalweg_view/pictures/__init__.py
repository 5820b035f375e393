"""Pictures: what the web page draws, as pure functions of the newest state and of a round."""
