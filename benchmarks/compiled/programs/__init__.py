"""Analysis of compiled programs: kernels, memory traffic and communication."""
