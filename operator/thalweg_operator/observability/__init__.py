"""What the operator shows of itself beside its metrics and logs: traces, gauges, the lag of watches, dumps."""
