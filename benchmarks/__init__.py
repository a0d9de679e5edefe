"""Benchmarks of speed and memory against other libraries; see README.md."""
