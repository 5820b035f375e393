"""Other plans than that of the scenario: one pod after another, with changes, with more nodes."""
