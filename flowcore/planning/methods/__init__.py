"""Ways to solve a problem: greedy, flow, relaxation, CP-SAT, searches."""
