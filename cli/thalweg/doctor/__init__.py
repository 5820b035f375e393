"""``thalweg doctor``: ``gather`` reads facts about a cluster, the checks judge them, ``report`` prints the findings."""
