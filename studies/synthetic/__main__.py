"""Writes synthetic parallel languages with labeled data for every task.

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
  """Returns the parser of `python -m studies.synthetic`."""
  parser = argparse.ArgumentParser(
    prog='python -m studies.synthetic',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add = parser.add_argument
  add('--output', required=True, help='Directory to write.')
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
    help='Script, word_order, adjective, adposition, determiner or morphology '
    'of a language. May be repeated.',
  )
  add(
    '--sentences',
    type=int,
    default=2000,
    help='Monolingual training lines of each language.',
  )
  add(
    '--pairs',
    type=int,
    help='Training pairs of each language with the first. Defaults to '
    '--sentences.',
  )
  add(
    '--examples',
    type=int,
    default=2000,
    help='Training examples of each labeled task family.',
  )
  add(
    '--held_out',
    type=int,
    default=200,
    help='Validation examples and test examples of every task.',
  )
  add(
    '--size',
    action='append',
    default=[],
    metavar='TASK/SPLIT=N',
    help='Number of examples of one split, such as nli/train=5000. May be '
    'repeated.',
  )
  add(
    '--anchors',
    type=float,
    default=0.0,
    help='Fraction of words that are the same string in all languages.',
  )
  add(
    '--domain_shift',
    type=float,
    default=0.0,
    help='0 for monolingual text on the same topics in all languages, 1 for '
    'different topics than in the first.',
  )
  add(
    '--hard_inference',
    type=float,
    default=0.25,
    help='Fraction of NLI pairs that need reasoning under negation.',
  )
  add('--seed', type=int, default=0, help='Random seed.')
  add('--json', action='store_true', help='Print the paths as JSON.')
  return parser


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  return command_line.run_command(build_parser(), _write, arguments)


def _write(args: argparse.Namespace) -> None:
  """Writes the directory and prints its content."""
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
  """Returns the options of the command line."""
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
  """Parses the values of --size, such as 'nli/train=5000'."""
  sizes = {}
  for text in texts:
    name, _, number = text.partition('=')
    if not number.isdecimal():
      raise errors.ConfigError(
        'Invalid value of --size',
        got=text,
        expected='TASK/SPLIT=N, such as nli/train=5000',
        where='--size',
      )
    sizes[name] = int(number)
  return sizes


if __name__ == '__main__':
  sys.exit(main())
