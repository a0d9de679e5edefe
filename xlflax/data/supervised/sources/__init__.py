"""Sources of labeled examples: files, SeqIO tasks, benchmarks and mixtures."""
