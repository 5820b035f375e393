"""``thalweg audit``: what placement costs, as text, as a page for a browser, and who would carry out a plan."""
