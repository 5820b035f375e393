"""Running pods leave for atomic groups whose gangs keep to domains: each gang chooses its own."""

from flowcore.planning.evictions.domains.domain_evictions import place_in_domains

__all__ = ["place_in_domains"]
