"""The stages that need a GPU: correctness, timing, counters, and the proofs of the instrument."""
