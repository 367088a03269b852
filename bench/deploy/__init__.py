"""Inference as people deploy it: six models, each system in a process of its own, all in turn (`--only inference`)."""
