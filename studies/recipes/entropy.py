"""Prints the entropy of each language's token frequencies, in nats.

python -m studies.recipes.entropy CORPUS VOCABULARY
"""

import argparse
import collections
import math
import sys
from collections.abc import Sequence

import sentencepiece

from studies import command_line


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.recipes.entropy', __doc__)
  for name in ('corpus', 'vocabulary'):
    parser.add_argument(
      name,
      type=command_line.input_directory,
      metavar=name.upper(),
      help=f'Directory of the {name}.',
    )
  return command_line.run_command(parser, _print_entropies, arguments)


def _print_entropies(args: argparse.Namespace) -> None:
  """Prints the entropy for each monolingual text in the corpus."""
  model = (args.vocabulary / 'sentencepiece.model').read_bytes()
  processor = sentencepiece.SentencePieceProcessor(model_proto=model)
  for path in sorted((args.corpus / 'mono').glob('*.txt')):
    counts: collections.Counter[int] = collections.Counter()
    for line in path.read_text('utf-8').splitlines():
      counts.update(processor.encode(line.strip()))
    total = sum(counts.values())
    frequencies = [count / total for count in counts.values()]
    entropy = -sum(frequency * math.log(frequency) for frequency in frequencies)
    print(f'{path.name}: {total:,} tokens, {entropy:.2f}')


if __name__ == '__main__':
  sys.exit(main())
