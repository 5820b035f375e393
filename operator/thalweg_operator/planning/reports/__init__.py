"""What the operator reports of its rounds: metrics, Events, records, log lines about progress."""
