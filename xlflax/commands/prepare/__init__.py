"""`xlflax prepare`: processes the text of a corpus directory."""

import argparse
import dataclasses
from collections.abc import Sequence

from xlflax.commands.flags import json_lines
from xlflax.commands.prepare import prepare_flags
from xlflax.data.dictionaries.settings import CodeSwitching
from xlflax.foundation import errors
from xlflax.storage import mirrors, paths

HELP = (
  'Writes a corpus directory of processed text: Moses normalisation and '
  'tokenisation, Chinese word segmentation, code-switching by the '
  "corpus's dictionaries. Lines without letters go, and pairs of which one "
  'side copies the other. Compression, documents and the alignment of '
  'pairs stay. Run again after an interruption, it goes on where it '
  'stopped.'
)

_FILTERS = """min_letters max_similarity min_characters max_characters
  min_script_share min_language_probability max_ratio""".split()
_NEAR = ('near_bands', 'near_rows', 'near_characters')
FLAGS = prepare_flags.FLAGS
FLAG_KINDS = prepare_flags.FLAG_KINDS
_KEPT = {'keep': 'all', 'equal': 'not_equal', 'near': 'not_near'}


def run(args: argparse.Namespace) -> int:
  """Writes what is missing, and prints a line for each file."""
  switching = _switching(args)
  _check(args)
  with mirrors.output(args.output, share=args.shard) as args.output:
    done = _prepare(args, switching)
  if args.shard and not args.json:
    index, count = args.shard
    print(f'Share {index}/{count}: {len(done)} files are done.')
  return 0


def _check(args: argparse.Namespace) -> None:
  _check_margins(args)
  if args.duplicates != 'near' and _given(args, _NEAR):
    raise errors.ConfigError(
      'Settings of near-duplicates without them',
      got=', '.join(_given(args, _NEAR)),
      fix='add --duplicates=near',
    )


def _check_margins(args: argparse.Namespace) -> None:
  names = ('min_margin', 'margin_model')
  given = _given(args, (*names, 'margin_layer'))
  missing = [name for name in names if name not in given]
  if given and missing:
    raise errors.ConfigError(
      'Margins need a threshold and an encoder',
      got=', '.join(f'--{name}' for name in given),
      expected=', '.join(f'--{name}' for name in missing) + ' too',
    )


def _prepare(args: argparse.Namespace, switching: CodeSwitching | None) -> list:
  # Slow imports, after --help.
  from xlflax.data.corpus.directory import Corpus
  from xlflax.data.preparation import preparation
  from xlflax.data.preparation.decontamination import Decontamination
  from xlflax.data.preparation.duplicates import Deduplication, Kept
  from xlflax.data.preparation.filters import TextFilters
  from xlflax.data.preparation.text_processing import TextProcessing

  return preparation.prepare(
    Corpus(args.corpus),
    args.output,
    processing=TextProcessing(
      moses=args.moses,
      segment_chinese=args.segment_chinese,
      split_sentences=args.split_sentences,
    ),
    code_switching=switching,
    filters=TextFilters(**_given(args, _FILTERS)),
    deduplication=Deduplication(
      kept=Kept(_KEPT[args.duplicates]),
      **{
        name.removeprefix('near_'): value
        for name, value in _given(args, _NEAR).items()
      },
    ),
    decontamination=Decontamination(files=_codes(args.decontaminate) or ()),
    margins=_margins(args),
    languages=_codes(args.languages),
    num_processes=args.num_processes,
    share=args.shard,
    overwrite=args.overwrite,
    report=lambda prepared: _show(args, prepared),
  )


def _show(args: argparse.Namespace, prepared) -> None:
  """Prints what became of a file."""
  if args.json:
    json_lines.show([dataclasses.asdict(prepared)])
  else:
    print(_line(prepared), flush=True)


def _margins(args: argparse.Namespace) -> tuple | None:
  """The filter of pairs and its encoder, if one is asked for."""
  if args.min_margin is None:
    return None
  from xlflax.data.preparation.pair_margins import MarginFilter
  from xlflax.runs import run as run_lib
  from xlflax.training.checkpointing import run_directory

  run = run_lib.open_run(args.margin_model)
  own = f'layer {args.margin_layer} of {run.sentence}'
  name = run_directory.run_id(paths.of(args.margin_model)) or args.margin_model
  return (
    MarginFilter(
      least=args.min_margin, encoder=f'{name}, step {run.step}, {own}'
    ),
    lambda texts, languages: run.encode(
      texts, languages=languages, layer=args.margin_layer
    ),
  )


def _given(args: argparse.Namespace, names: Sequence[str]) -> dict:
  """The flags that were given, by name."""
  values = {name: getattr(args, name) for name in names}
  return {name: value for name, value in values.items() if value is not None}


def _switching(args: argparse.Namespace) -> CodeSwitching | None:
  given = {
    'probability': args.code_switch_probability,
    'max_share': args.code_switch_max_share,
    'group_lines': args.code_switch_group_lines,
    'languages': _codes(args.code_switch_into),
    'copies': args.copies,
    'seed': args.seed,
  }
  given = {name: value for name, value in given.items() if value is not None}
  if args.code_switch:
    return CodeSwitching(**given)
  if given:
    raise errors.ConfigError(
      'Settings of code-switching without it',
      got=', '.join(given),
      fix='add --code_switch',
    )
  return None


def _codes(text: str | None) -> tuple[str, ...] | None:
  if text is None:
    return None
  return tuple(code.strip() for code in text.split(',') if code.strip())


def _line(prepared) -> str:
  out = f'{prepared.path:<40} {prepared.lines:>12,} lines'
  if prepared.words:
    out += (
      f'  {prepared.changed:>12,} of {prepared.words:,} words switched '
      f'({prepared.changed / prepared.words:.1%})'
    )
  if prepared.dropped:
    out += '  dropped: ' + ', '.join(
      f'{count:,} {why}' for why, count in prepared.dropped.items()
    )
  if not prepared.lines:
    out += '  left out, as none are left'
  return out + ('  as it was' if prepared.reused else '')
