"""FlowSchedulingPolicy objects: their versions, status and the admission of gates."""
