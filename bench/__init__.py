"""Benchmarks, and the registry of models that the benchmarks and the tests share."""
