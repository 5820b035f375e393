"""A day of gangs on a cluster with blocks, racks and hosts, in memory: arrivals, rules of placement, figures."""
