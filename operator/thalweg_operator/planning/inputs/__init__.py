"""What a round reads beside the cluster: each module follows one thing and hands on its changes."""
