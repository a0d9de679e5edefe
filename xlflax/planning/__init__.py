"""What a compiled, partitioned step holds, sends and costs, before it runs."""
