"""`xlflax demo`: from real text to scores, in minutes on a CPU."""

import argparse

from xlflax.commands.flags import gin_flags
from xlflax.demo import catalogs

HELP = (
  'Trains and evaluates a small cross-lingual encoder on real messages '
  'that ship inside PyPI packages, with no download: corpus, '
  'vocabulary, token cache, pretraining, and retrieval and perplexity '
  'against the untrained model, with pictures.'
)


FLAGS = f"""
--model_dir DIR (default runs/demo): directory of the run; text, vocabulary and
  cache are in DIR_data
--steps (Count): training steps (default: as demo/demo.gin says)
--languages CODES (default {','.join(catalogs.LANGUAGES)}): comma-separated
  languages of Django, en among them
{gin_flags.FLAGS}
"""


def run(args: argparse.Namespace) -> int:
  """Runs all phases."""
  from xlflax.demo import demo, pipeline

  steps = (
    []
    if args.steps is None
    else [f'TRAIN_STEPS={args.steps}', f'WARMUP_STEPS={args.steps // 10}']
  )
  demo.run(
    pipeline.Settings(
      model_dir=args.model_dir,
      languages=tuple(args.languages.split(',')),
      gin_files=(pipeline.GIN_FILE, *args.gin_file),
      gin_bindings=(*steps, *args.gin_bindings),
      gin_search_paths=tuple(args.gin_search_paths),
    )
  )
  return 0
