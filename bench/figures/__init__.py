"""Measures and writes the figures of README.md and docs/internals/figures.md: `make figures`."""
