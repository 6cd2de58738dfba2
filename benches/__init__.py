"""Benchmarks of whole engines; see README.md."""
