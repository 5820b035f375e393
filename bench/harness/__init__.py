"""What the benchmarks share: a bare control plane, the scheduler under test, a watch of bindings, sums."""
