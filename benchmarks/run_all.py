"""Runs several benchmarks in sequence: `make benchmarks` (about 12 minutes)."""

from benchmarks import (
  beam_search,
  code_switching,
  inference,
  input_pipeline,
  training_step,
  vocabularies,
)


def main() -> None:
  """Runs the benchmarks that do not require downloaded data."""
  for vocabulary, calls in ((250_000, 3), (32_000, 5)):
    training_step.main(['--vocabulary', str(vocabulary), '--calls', str(calls)])
  inference.main([])
  beam_search.main([])
  input_pipeline.main([])
  code_switching.main([])
  vocabularies.main([])


if __name__ == '__main__':
  main()
