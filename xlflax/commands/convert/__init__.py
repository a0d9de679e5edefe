"""`xlflax convert`: one module for each conversion."""

import argparse

from xlflax.commands.flags import parsing

HELP = 'Converts checkpoints.'
EXAMPLES = """
  # a Hugging Face folder as a model directory; see first what becomes what
  xlflax convert from-hf models/xlm-roberta-base --output=runs/xlmr --dry_run
  xlflax convert from-hf models/xlm-roberta-base --output=runs/xlmr

  # train on from it, or measure it as it is
  xlflax train … --gin.INIT_FROM="'runs/xlmr'"
  xlflax evaluate --model_dir=runs/xlmr --tasks=retrieval --corpus=corpus

  # and back
  xlflax convert to-hf runs/xlmr --output=models/mine

  # a checkpoint of T5X's mT5, or of one of these models trained by t5x.train
  xlflax convert from-t5x mt5/checkpoint_1000000 --tokenizer=mt5 \\
      --output=runs/mt5
  xlflax convert from-t5x t5x_runs/mlm/checkpoint_100000 \\
      --gin_file=models/small.gin --vocabulary=vocabulary --output=runs/mlm

  # the mean of the last ten checkpoints of a run
  xlflax convert average --model_dir=runs/mt --last=10 --output=runs/mt-mean
  xlflax evaluate --model_dir=runs/mt-mean
"""


KINDS = ('from-hf', 'to-hf', 'from-t5x', 'average')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds a parser for each conversion."""
  parsing.add_commands(parser, __name__, KINDS, metavar='CONVERSION')
