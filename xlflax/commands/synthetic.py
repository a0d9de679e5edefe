"""`xlflax synthetic`: writes toy languages with data for every task."""

import argparse
import json

from xlflax.foundation import errors, numeric_flags, ranges

HELP = (
  'Writes invented parallel languages that differ in script, word '
  'order, morphology and shared words: a corpus directory (DIR/corpus) '
  'and labelled data of every task family in the public formats. The '
  'same seed gives the same bytes on every machine.'
)
EXAMPLES = """
  # three languages, a fifth of their words the same strings
  xlflax synthetic --output=toy --languages=en,aa,bb --sentences=2000 \\
      --seed=0 --anchors=0.2

  # then as with any corpus
  xlflax vocab --corpus=toy/corpus --output=toy/vocabulary --size=600 \\
      --character_coverage=1

  # languages of your own, of two word orders; monolingual text of two topics
  xlflax synthetic --output=own --languages=en,xx,yy --domain_shift=1 \\
      --change xx.word_order=svo --change yy.word_order=sov

  # more data of some tasks
  xlflax synthetic --output=big --examples=5000 --size nli/train=20000 \\
      --size qa/test=300
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the generator."""
  _add_languages(parser)
  _add_sizes(parser)
  _add_differences(parser)
  parser.add_argument(
    '--hard_inference',
    type=numeric_flags.of(ranges.Share),
    default=0.25,
    metavar='S',
    help='share of NLI pairs that need '
    'reasoning under negation (default: %(default)s)',
  )
  parser.add_argument(
    '--seed',
    type=numeric_flags.of(ranges.Seed),
    default=0,
    help='default: %(default)s',
  )
  parser.add_argument(
    '--json', action='store_true', help='print the paths as JSON'
  )


def _add_languages(parser: argparse.ArgumentParser) -> None:
  """Adds the folder and the languages in it."""
  parser.add_argument(
    '--output', metavar='DIR', required=True, help='directory to write'
  )
  parser.add_argument(
    '--languages',
    metavar='CODES',
    default='en,aa,bb',
    help='comma-separated, the pivot first (default: %(default)s); ready '
    'made: en aa bb cc dd ee ff gg',
  )
  parser.add_argument(
    '--change',
    metavar='CODE.FACTOR=VALUE',
    action='append',
    default=[],
    help='script, word_order, adjective, adposition, determiner or '
    'morphology of a language; may be repeated',
  )


def _add_sizes(parser: argparse.ArgumentParser) -> None:
  """Adds the sizes of text and labelled data."""
  _add_text_sizes(parser)
  _add_example_sizes(parser)
  parser.add_argument(
    '--size',
    metavar='KIND/SPLIT=N',
    action='append',
    default=[],
    help='an exception; may be repeated',
  )


def _add_text_sizes(parser: argparse.ArgumentParser) -> None:
  """Adds the sizes of the text."""
  parser.add_argument(
    '--sentences',
    type=numeric_flags.of(ranges.Count),
    default=2000,
    help='monolingual training lines of each language (default: %(default)s)',
  )
  parser.add_argument(
    '--pairs',
    type=numeric_flags.of(ranges.Count),
    help='training pairs of each language with the first '
    '(default: as --sentences)',
  )


def _add_example_sizes(parser: argparse.ArgumentParser) -> None:
  """Adds the sizes of the labelled data."""
  parser.add_argument(
    '--examples',
    type=numeric_flags.of(ranges.Count),
    default=2000,
    help='training examples of each labelled family (default: %(default)s)',
  )
  parser.add_argument(
    '--held_out',
    type=numeric_flags.of(ranges.Count),
    default=200,
    help='examples of dev and of test, of everything (default: %(default)s)',
  )


def _add_differences(parser: argparse.ArgumentParser) -> None:
  """Adds how far the languages are apart."""
  parser.add_argument(
    '--anchors',
    type=numeric_flags.of(ranges.Share),
    default=0.0,
    metavar='S',
    help='share of words that are the same in all '
    'languages (default: %(default)s)',
  )
  parser.add_argument(
    '--domain_shift',
    type=numeric_flags.of(ranges.Share),
    default=0.0,
    metavar='S',
    help='0: monolingual text is about the same topics in '
    'all languages, 1: about others than in the first '
    '(default: %(default)s)',
  )


def run(args: argparse.Namespace) -> int:
  """Writes the folder and prints what is in it."""
  from xlflax.synthetic import generator, typology

  options = _options(args)
  paths = generator.write(args.output, options)
  if args.json:
    content = {
      'directory': args.output,
      'files': paths,
      'options': options.to_json(),
    }
    print(json.dumps(content, indent=2))
    return 0
  for language in options.typologies:
    print(
      language.code,
      *(getattr(language, factor).value for factor in typology.FACTORS),
    )
  print(f'{len(paths)} files in {args.output}')
  return 0


def _options(args: argparse.Namespace):
  from xlflax.synthetic import typology
  from xlflax.synthetic.options import SyntheticOptions

  codes = [code.strip() for code in args.languages.split(',') if code.strip()]
  return SyntheticOptions(
    languages=typology.parse_languages(codes, args.change),
    sentences=args.sentences,
    pairs=args.sentences if args.pairs is None else args.pairs,
    examples=args.examples,
    held_out=args.held_out,
    sizes=_sizes(args.size),
    anchors=args.anchors,
    domain_shift=args.domain_shift,
    hard_inference=args.hard_inference,
    seed=args.seed,
  )


def _sizes(texts: list[str]) -> dict[str, int]:
  sizes = {}
  for text in texts:
    name, _, number = text.partition('=')
    if not number.isdecimal():
      raise errors.ConfigError(
        'A size cannot be read',
        got=text,
        expected='<kind>/<split>=<number>, such as nli/train=5000',
        where='--size',
      )
    sizes[name] = int(number)
  return sizes
