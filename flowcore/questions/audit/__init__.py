"""What the placement of pods costs a cluster, whoever placed them, each finding with a witness and a bound."""
