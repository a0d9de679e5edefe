"""Writes parallel corpora of synthetic languages with labels for every task.

    python -m studies.synthetic --output=toy --languages=en,aa,bb

The same options produce the same bytes on every machine.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from studies import command_line
from studies.synthetic import generator, typology
from studies.synthetic.options import SyntheticOptions
from xlflax.utils import errors


def build_parser() -> argparse.ArgumentParser:
  """Returns the argument parser of `python -m studies.synthetic`."""
  parser = command_line.create_parser('studies.synthetic', __doc__)
  add = parser.add_argument
  add(
    '--output',
    required=True,
    help='Directory to which the languages are written.',
  )
  add(
    '--languages',
    default='en,aa,bb',
    help='Comma-separated codes, the pivot first. Predefined languages: en, '
    'aa, bb, cc, dd, ee, ff, gg.',
  )
  add(
    '--change',
    action='append',
    default=[],
    metavar='CODE.FACTOR=VALUE',
    help=(
      'Changed factor of a language: script, word_order, adjective, '
      'adposition, determiner or morphology. Repeat the option for several '
      'changes.'
    ),
  )
  add(
    '--sentences',
    type=int,
    default=2000,
    help='Number of monolingual training lines per language.',
  )
  add(
    '--pairs',
    type=int,
    help=(
      'Number of training pairs between the first language and each other '
      'language. Defaults to --sentences.'
    ),
  )
  add(
    '--examples',
    type=int,
    default=2000,
    help='Number of training examples per labeled task family.',
  )
  add(
    '--held_out',
    type=int,
    default=200,
    help='Number of validation examples and of test examples for every task.',
  )
  add(
    '--size',
    action='append',
    default=[],
    metavar='TASK/SPLIT=N',
    help=(
      'Number of examples in one split, such as nli/train=5000. Repeat the '
      'option for several splits.'
    ),
  )
  add(
    '--anchors',
    type=float,
    default=0.0,
    help='Fraction of words that are spelled identically in all languages.',
  )
  add(
    '--domain_shift',
    type=float,
    default=0.0,
    help=(
      "Difference in topics between the languages' monolingual text. 0 "
      'uses the same topics in all languages, and 1 uses different topics '
      'in the first language than in all other languages.'
    ),
  )
  add(
    '--hard_inference',
    type=float,
    default=0.25,
    help='Fraction of NLI pairs that require reasoning about negation.',
  )
  add('--seed', type=int, default=0, help='Random seed.')
  add('--json', action='store_true', help='Print the written paths as JSON.')
  return parser


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  return command_line.run_command(build_parser(), _write, arguments)


def _write(args: argparse.Namespace) -> None:
  """Writes the synthetic languages and prints the written paths."""
  options = _parse_options(args)
  paths = generator.write_languages(args.output, options)
  if args.json:
    content = {
      'directory': args.output,
      'files': paths,
      'options': options.to_json(),
    }
    print(json.dumps(content, indent=2))
    return
  for language in options.typologies:
    print(
      language.code,
      *(getattr(language, factor).value for factor in typology.FACTORS),
    )
  print(f'{len(paths)} files in {args.output}')


def _parse_options(args: argparse.Namespace) -> SyntheticOptions:
  """Returns the generator options from parsed command-line arguments."""
  codes = [code.strip() for code in args.languages.split(',') if code.strip()]
  return SyntheticOptions(
    languages=typology.parse_languages(codes, args.change),
    sentences=args.sentences,
    pairs=args.sentences if args.pairs is None else args.pairs,
    examples=args.examples,
    held_out=args.held_out,
    sizes=_parse_sizes(args.size),
    anchors=args.anchors,
    domain_shift=args.domain_shift,
    hard_inference=args.hard_inference,
    seed=args.seed,
  )


def _parse_sizes(texts: list[str]) -> dict[str, int]:
  """Parses values of --size, such as 'nli/train=5000'."""
  sizes = {}
  for text in texts:
    name, _, number = text.partition('=')
    if not number.isdecimal():
      raise errors.ConfigError(
        'Each value of --size must specify a task, a split and a size',
        got=text,
        expected='The form must be TASK/SPLIT=N, such as nli/train=5000',
      )
    sizes[name] = int(number)
  return sizes


if __name__ == '__main__':
  sys.exit(main())
