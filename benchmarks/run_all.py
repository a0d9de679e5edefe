"""All comparisons one after the other: `make benchmarks`, about 10 minutes."""

from benchmarks import input_pipeline, training_step


def main() -> None:
  for vocabulary, calls in ((250_000, 3), (32_000, 5)):
    training_step.main(
        ['--vocabulary', str(vocabulary), '--calls', str(calls)])
  input_pipeline.main([])


if __name__ == '__main__':
  main()
