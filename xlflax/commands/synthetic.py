"""`xlflax synthetic`: writes toy languages with data for every task."""

import argparse
import json

from xlflax.foundation import errors
from xlflax.storage import mirrors

HELP = (
  'Writes invented parallel languages that differ in script, word '
  'order, morphology and shared words: a corpus directory (DIR/corpus) '
  'and labelled data of every task family in the public formats. The '
  'same seed gives the same bytes on every machine.'
)


FLAGS = """
--output DIR (required): directory to write
--languages CODES (default en,aa,bb): comma-separated, the pivot first; ready
  made: en aa bb cc dd ee ff gg
--change CODE.FACTOR=VALUE (repeated): script, word_order, adjective,
  adposition, determiner or morphology of a language; may be repeated
--sentences (Count, default 2000): monolingual training lines of each language
--pairs (Count): training pairs of each language with the first (default: as
  --sentences)
--examples (Count, default 2000): training examples of each labelled family
--held_out (Count, default 200): examples of dev and of test, of everything
--size KIND/SPLIT=N (repeated): an exception; may be repeated
--anchors S (Share, default 0.0): share of words that are the same in all
  languages
--domain_shift S (Share, default 0.0): 0: monolingual text is about the same
  topics in all languages, 1: about others than in the first
--hard_inference S (Share, default 0.25): share of NLI pairs that need reasoning
  under negation
--seed (Seed, default 0)
--json (switch): print the paths as JSON
"""


def run(args: argparse.Namespace) -> int:
  """Writes the folder and prints what is in it."""
  from xlflax.synthetic import generator, typology

  options = _options(args)
  with mirrors.output(args.output) as output:
    paths = generator.write(output, options)
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
