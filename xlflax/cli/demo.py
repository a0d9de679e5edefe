"""`xlflax demo`: trains and evaluates a small model in minutes on a CPU."""

import dataclasses

from xlflax.cli import options as shared_options
from xlflax.demo import demo_corpus


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoOptions:
  """Trains and evaluates a small cross-lingual encoder without a download.

  The text consists of the translated messages of Django, which is installed
  with xlflax. The demo writes a corpus, a vocabulary and a token cache,
  pretrains the encoder, and writes a report with plots that compares its
  retrieval accuracy and perplexity with those of the untrained model.

  Attributes:
    model_dir: Run directory. Text, vocabulary and cache are written to a
      directory of the same name with the suffix "_data".
    steps: Number of training steps. Defaults to the value in demo/demo.gin.
    languages: Languages of the Django message catalogs, separated by commas.
      They must include en.
  """

  model_dir: str = 'runs/demo'
  steps: shared_options.PositiveInt | None = None
  languages: shared_options.CommaSeparatedNames = ','.join(
    demo_corpus.LANGUAGES
  )
  gin: shared_options.GinOptions = shared_options.GinOptions()


EXAMPLES = r"""
Run all phases, in less than six minutes on two cores:
  xlflax demo

Try all phases on fewer languages, in about a minute:
  xlflax demo --model_dir=runs/glance --steps=20 --languages=en,de,ja,ar

Train with another temperature:
  xlflax demo --model_dir=runs/cold --gin.TEMPERATURE=0.05
"""


def main(options: DemoOptions) -> None:
  """Runs the complete demo, from text to report."""
  from xlflax.demo import demo_pipeline, demo_run

  step_bindings: list[str] = []
  if options.steps is not None:
    step_bindings = [
      f'TRAIN_STEPS={options.steps}',
      f'WARMUP_STEPS={options.steps // 10}',
    ]
  demo_run.run(
    demo_pipeline.Settings(
      model_dir=options.model_dir,
      languages=tuple(options.languages.split(',')),
      gin_files=(demo_pipeline.GIN_FILE, *options.gin.gin_file),
      gin_bindings=(*step_bindings, *options.gin.gin_bindings),
      gin_search_paths=options.gin.gin_search_paths,
    )
  )
