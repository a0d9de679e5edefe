"""Sources of labelled examples: files, tasks, benchmarks, mixtures."""
