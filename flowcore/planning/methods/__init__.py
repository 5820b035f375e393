"""Ways to solve a problem: greedy, flow, relaxation, ruin and rebuild, CP-SAT."""
