"""Ways to solve a problem: greedy, flow, relaxation, large-neighbourhood search, CP-SAT."""
