"""All comparisons one after the other: `make benchmarks`, about 10 minutes."""

from benchmarks import (
  code_switching,
  input_pipeline,
  training_step,
  vocabularies,
)


def main() -> None:
  for vocabulary, calls in ((250_000, 3), (32_000, 5)):
    training_step.main(
        ['--vocabulary', str(vocabulary), '--calls', str(calls)])
  input_pipeline.main([])
  code_switching.main([])
  vocabularies.main([])


if __name__ == '__main__':
  main()
