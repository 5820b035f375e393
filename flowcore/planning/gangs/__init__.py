"""Which gangs a round may begin: pods that share a claim are a gang too, and some gangs wait for room of later pods."""
