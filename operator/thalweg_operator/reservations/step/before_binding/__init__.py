"""What happens between a plan and the bindings of pods with claims: these get their volumes and devices."""
