"""Fair shares of the queues: what is due to each, the order that follows for waiting pods, limits and reclaim.

Sources: dominant resource fairness (Ghodsi et al., NSDI 2011); in a tree (Bhattacharya et al., SoCC 2013).
"""
