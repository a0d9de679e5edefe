"""Trains the tiny twin of every row of the papers' tables, and times it.

  python docs/papers/run_twins.py --data DATA --work WORK [--only REGEX] \
      [--jobs 2]

DATA holds the data sets that `docs/real_text/build_corpus.py` names. In WORK it
makes corpora, vocabularies, token caches and runs by `xlflax` commands, each
once: what is finished is not made again. The commands are in WORK/commands.txt,
the table of docs/papers.md is printed and written to WORK/twins.md.
"""

import argparse
import concurrent.futures
import pathlib
import re
import sys

import runner

from xlflax import config

PAIRS = runner.PAIRS


def paper_row(
  name: str, table: str, row: str, file: str, *rest, **more
) -> runner.Row:
  return runner.Row(name, twin(file), *rest, table=table, row=row, **more)


def twin(file: str) -> tuple[str, ...]:
  """The gin files of a tiny twin: its own, or its row's and the sizes.

  'ecs/tiny_default' is `papers/ecs/default.gin` and `papers/ecs/tiny.gin`.
  """
  paper, _, name = file.partition('/')
  folder = f'papers/{paper}'
  if (config.SHIPPED / folder / f'{name}.gin').exists():
    return (f'{folder}/{name}.gin',)
  row = name.removeprefix('tiny_')
  translates = row.startswith(('iwslt14', 'wmt14')) or 'mbart' in row
  sizes = 'tiny_translation' if translates else 'tiny'
  return (f'{folder}/{row}.gin', f'{folder}/{sizes}.gin')


def _shown(files: tuple[str, ...]) -> str:
  return ', '.join(
    f'`{f if i == 0 else f.split("/")[-1]}`' for i, f in enumerate(files)
  )


def ecs_rows() -> list[runner.Row]:
  """ECS table 1, for each of its three language pairs."""
  conditions = (
    ('default', 'Default', 'joint'),
    ('wiki_cc', 'Wiki-CC', 'joint'),
    ('default_anchors', 'Default anchors', 'shared'),
    ('no_anchors', 'No anchors', 'none'),
    ('extra_anchors', 'Extra anchors', 'joint'),
    ('sep_emb', 'Sep Emb', 'separate'),
    ('sep_emb_l1_3', 'Sep Emb + L1-3', 'separate'),
    ('sep_emb_l1_6', 'Sep Emb + L1-6', 'separate'),
    ('sep_l1_3', 'Sep L1-3', 'shared'),
    ('sep_l1_6', 'Sep L1-6', 'shared'),
  )
  return [
    paper_row(
      f'ecs_{file}_{x}',
      'ECS 1',
      f'{title}, {x}',
      f'ecs/tiny_{file}',
      f'ecs_cc_{x}' if file == 'wiki_cc' else f'ecs_{x}',
      vocabulary,
    )
    for x in PAIRS
    for file, title, vocabulary in conditions
  ]


def metaxlm_rows() -> list[runner.Row]:
  """MetaXLM tables 1 to 5."""
  meta = (('INIT_DIR', 'metaxlm_meta'),)
  rows = (
    ('metaxlm', '1-5', 'MetaXLM, Both'),
    ('dict', '1, 2', '+Dict'),
    ('freezing', '4', '+freezing'),
    ('body', '5', 'Body'),
    ('emb', '5', 'Emb'),
    ('kd', '3', 'XLM+KD'),
  )
  return [
    paper_row(
      'metaxlm_meta',
      'MetaXLM',
      'the meta-pretrained model',
      'metaxlm/tiny_meta',
      vocabulary='english',
    ),
    paper_row('metaxlm_xlm', 'MetaXLM 1-5', 'XLM, None', 'metaxlm/tiny_xlm'),
  ] + [
    paper_row(
      f'metaxlm_{file}',
      f'MetaXLM {table}',
      title,
      f'metaxlm/tiny_{file}',
      macros=meta,
    )
    for file, table, title in rows
  ]


def ppa_rows() -> list[runner.Row]:
  """PPA tables 2 to 5."""
  ablations = (
    ('', 'PPA'),
    ('_no_moco', '- MoCo'),
    ('_no_tlm', '- TLM'),
    ('_mlm', 'repl TLM w/ MLM'),
  )
  return [
    paper_row('ppa_mbert', 'PPA', 'the mBERT it begins from', 'ppa/tiny_mbert')
  ] + [
    paper_row(
      f'ppa_{size}{file}',
      'PPA 5' if file else 'PPA 2-5',
      f'{title} ({size})',
      f'ppa/tiny_{size}{file}',
      macros=(('INIT_DIR', 'ppa_mbert'),),
    )
    for size in ('250k', '600k', '2m')
    for file, title in ablations
  ]


def veco_rows() -> list[runner.Row]:
  """VECO tables 2 to 5."""
  encoder = (('INIT_DIR', 'veco_xlmr'),)
  phase_1 = (('INIT_DIR', 'veco_large_phase1'),)
  phase_2 = (('INIT_DIR', 'veco_large_phase2'),)
  small = (
    ('small_mlm', 'XLM, MLM, mono.'),
    ('small_mbart', 'mBART, MLM, mono.'),
    ('small_ca_mlm', 'VECO, CA-MLM, mono.'),
    ('small_mlm_tlm', 'XLM, MLM+TLM, bili.'),
    ('small_mbart_tlm', 'mBART, MLM+TLM, bili.'),
    ('small_ca_mlm_tlm', 'VECO, CA-MLM+TLM, bili.'),
  )
  rows = [
    paper_row(
      'veco_xlmr', 'VECO', 'the XLM-R it begins from', 'veco/tiny_xlmr'
    ),
    paper_row(
      'veco_large_phase1',
      'VECO 1, 2',
      'VECO, phase 1',
      'veco/tiny_large_phase1',
      macros=encoder,
      measure='ca_mlm_pairs/cross_loss - ca_mlm_pairs/self_loss',
    ),
    paper_row(
      'veco_large_phase2',
      'VECO 1, 2',
      'VECO, phase 2',
      'veco/tiny_large_phase2',
      macros=phase_1,
    ),
    paper_row(
      'veco_mbart',
      'VECO 3',
      'the mBART that its row begins from',
      'veco/tiny_mbart',
    ),
  ]
  for x in ('de', 'fr'):
    rows += [
      paper_row(
        f'veco_wmt_{x}_random',
        'VECO 3',
        f'Baseline, en-{x}',
        f'veco/tiny_wmt14_en_{x}_random',
      ),
      paper_row(
        f'veco_wmt_{x}_mbart',
        'VECO 3',
        f'mBART, en-{x}',
        f'veco/tiny_wmt14_en_{x}_mbart',
        macros=(('INIT_DIR', 'veco_mbart'),),
      ),
      paper_row(
        f'veco_wmt_{x}_xlmr',
        'VECO 3',
        f'XLM-R, en-{x}',
        f'veco/tiny_wmt14_en_{x}_xlmr',
        macros=encoder,
      ),
      paper_row(
        f'veco_wmt_{x}_veco',
        'VECO 3',
        f'VECO, en-{x}',
        f'veco/tiny_wmt14_en_{x}_veco',
        macros=phase_2,
      ),
    ]
  rows += [
    paper_row(
      f'veco_shallow_{file}',
      'VECO 4',
      title,
      f'veco/tiny_shallow_{file}',
      macros=() if 'random' in file else phase_2,
    )
    for file, title in (
      ('random_3', 'random, 3'),
      ('random_6', 'random, 6'),
      ('first_3', 'VECO, first-3'),
      ('last_3', 'VECO, last-3'),
      ('first_6', 'VECO, first-6'),
      ('last_6', 'VECO, last-6'),
    )
  ]
  for file, title in small:
    rows += [
      paper_row(f'veco_{file}', 'VECO 5', title, f'veco/tiny_{file}'),
      paper_row(
        f'veco_iwslt_{file}',
        'VECO 5',
        f'{title}, de-en',
        f'veco/tiny_iwslt14_{file}',
        macros=(('INIT_DIR', f'veco_{file}'),),
        more=(
          "--gin.PARALLEL='corpus.parallel.en_de'",
          "--gin.sides/stream.PairOptions.order='reversed'",
        ),
      ),
    ]
  return rows


ROWS = ecs_rows() + veco_rows() + ppa_rows() + metaxlm_rows()


def table(results: dict[str, dict]) -> str:
  lines = [
    '| table | row | gin file | steps | first loss | final loss '
    '| CPU seconds |',
    '| --- ' * 7 + '|',
  ]
  for row in ROWS:
    if row.name in results:
      out = results[row.name]
      lines.append(
        f'| {row.table} | {row.row} | {_shown(row.files)} | {out["steps"]} '
        f'| {out["first"]:.3f} | {out["last"]:.3f} | {out["cpu_seconds"]:.0f} |'
      )
  return '\n'.join(lines) + '\n'


def main() -> int:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--data', required=True, type=pathlib.Path)
  parser.add_argument('--work', required=True, type=pathlib.Path)
  parser.add_argument(
    '--only',
    default='',
    help='names of runs, as a regular '
    'expression; those that they begin from are run too',
  )
  parser.add_argument('--jobs', type=int, default=1)
  args = parser.parse_args()
  maker = runner.Maker(args.data, args.work, ROWS)
  rows = [row for row in ROWS if re.search(args.only, row.name)]
  results, failed = {}, []
  with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
    futures = {pool.submit(maker.run, row): row for row in rows}
    for future in concurrent.futures.as_completed(futures):
      row = futures[future]
      try:
        results[row.name] = runner.result_of(future.result(), row.measure)
        print(f'{row.name}: {results[row.name]}', flush=True)
      except RuntimeError as error:
        failed.append(row.name)
        print(f'{row.name} FAILED: {error}', file=sys.stderr, flush=True)
  text = table(results)
  (args.work / 'twins.md').write_text(text)
  print(text)
  rising = [
    name for name, out in results.items() if out['last'] >= out['first']
  ]
  if failed or rising:
    print(f'failed: {failed}; loss not falling: {rising}', file=sys.stderr)
  return bool(failed or rising)


if __name__ == '__main__':
  sys.exit(main())
