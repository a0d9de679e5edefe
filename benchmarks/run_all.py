"""All comparisons one after the other: `make benchmarks`, about 25 minutes."""

from benchmarks import input_pipeline, training_step


def main() -> None:
  for vocabulary in (250_000, 32_000):
    training_step.main(['--vocabulary', str(vocabulary)])
  input_pipeline.main([])


if __name__ == '__main__':
  main()
