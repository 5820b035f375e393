"""The view of a running operator as a source: its Service or URL, and the token that it is shown."""
