"""Speed and memory benchmarks of xlflax and other libraries (README.md)."""
