"""`xlflax label`: a fine-tuned run labels the words of text."""

import argparse

from xlflax.cli import output_paths
from xlflax.commands.flags import compilation, language_files

HELP = (
  'Writes the labels that a run fine-tuned for parts of speech or '
  'entities gives to words: training data for self-labelled '
  'translate-train.'
)


FLAGS = f"""
--model_dir DIR (required): directory of the fine-tuned run
--input LANGUAGE=FILE (repeated, required): text, a sentence a line, words
  separated by spaces; repeat for several languages
--output DIR (required): where <language>.conll are written
--step (Natural): of the checkpoint (default: the newest)
--scheme (one of tags entities): type of the labels (default: that of the
  labels that the run was fine-tuned with)
--length (Count): maximum number of tokens per sequence (default: that of
  fine-tuning)
--batch_size (Count, default 64): sentences a batch
{compilation.FLAG}
"""


def run(args: argparse.Namespace) -> int:
  """Labels and lists the files."""
  files = language_files.parse(args.input, where='--input')
  for code, path in files.items():
    output_paths.check_differs(
      path, f'{args.output}/{code}.conll', option='output'
    )
  compilation.use(args.compilation_cache)
  from xlflax.finetuning import self_labelling

  written = self_labelling.label(
    teacher=args.model_dir,
    output=args.output,
    step=args.step,
    source=self_labelling.WordLines(files=files),
    scheme=args.scheme,
    length=args.length,
    batch_size=args.batch_size,
  )
  for path in written.values():
    print(path)
  return 0
