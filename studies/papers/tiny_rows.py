"""Training runs of tiny models for the rows in the papers' result tables."""

from typing import Any

from studies.papers import runner
from xlflax.config import gin_config


def paper_row(
  name: str, table: str, row: str, file: str, *inputs: str, **options: Any
) -> runner.Row:
  """Returns the training run of a tiny model for one row of a paper's table.

  Args:
    name: Name of the run.
    table: Paper and number of the table, such as 'ECS 1'.
    row: Name of the row in the paper's table.
    file: Name of the tiny configuration (see `tiny_gin_files`).
    *inputs: Corpus and vocabulary that the run uses.
    **options: Additional fields of `runner.Row`.
  """
  return runner.Row(
    name, tiny_gin_files(file), *inputs, table=table, row=row, **options
  )


def tiny_gin_files(file: str) -> tuple[str, ...]:
  """Returns the gin files of a tiny configuration.

  If a gin file with this name exists, it is returned. Otherwise, the result
  consists of the row's gin file and a file with tiny sizes. For example,
  'ecs/tiny_default' is `papers/ecs/default.gin` and `papers/ecs/tiny.gin`.
  """
  paper, _, name = file.partition('/')
  folder = f'papers/{paper}'
  if (gin_config.SHIPPED / folder / f'{name}.gin').exists():
    return (f'{folder}/{name}.gin',)
  row = name.removeprefix('tiny_')
  is_encoder_decoder = (
    row.startswith(('iwslt14', 'wmt14', 'script')) or 'mbart' in row
  )
  sizes = 'tiny_translation' if is_encoder_decoder else 'tiny'
  return (f'{folder}/{row}.gin', f'{folder}/{sizes}.gin')


def ecs_rows() -> list[runner.Row]:
  """Returns runs of tiny models for each language pair in ECS table 1."""
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
      f'ecs_{file}_{language}',
      'ECS 1',
      f'{title}, {language}',
      f'ecs/tiny_{file}',
      f'ecs_cc_{language}' if file == 'wiki_cc' else f'ecs_{language}',
      vocabulary,
    )
    for language in runner.PAIRED_LANGUAGES
    for file, title, vocabulary in conditions
  ]


def metaxlm_rows() -> list[runner.Row]:
  """Returns training runs of tiny models for MetaXLM tables 1 to 5."""
  meta_pretrained = (('INIT_DIR', 'metaxlm_meta'),)
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
      macros=meta_pretrained,
    )
    for file, table, title in rows
  ]


def ppa_rows() -> list[runner.Row]:
  """Returns training runs of tiny models for PPA tables 2 to 5."""
  ablations = (
    ('', 'PPA'),
    ('_no_moco', '- MoCo'),
    ('_no_tlm', '- TLM'),
    ('_mlm', 'repl TLM w/ MLM'),
  )
  return [
    paper_row('ppa_mbert', 'PPA', 'the initial mBERT', 'ppa/tiny_mbert')
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


_VECO_START = (('INIT_DIR', 'veco_xlmr'),)
_VECO_PHASE_1 = (('INIT_DIR', 'veco_large_phase1'),)
_VECO_PHASE_2 = (('INIT_DIR', 'veco_large_phase2'),)


def veco_rows() -> list[runner.Row]:
  """Returns training runs of tiny models for VECO tables 1 to 5.

  They include the runs that initialize other models.
  """
  return [
    paper_row('veco_xlmr', 'VECO', 'the initial XLM-R', 'veco/tiny_xlmr'),
    *_veco_phases(),
    paper_row(
      'veco_mbart', 'VECO 3', 'the initial mBART of its row', 'veco/tiny_mbart'
    ),
    *_veco_translation('de'),
    *_veco_translation('fr'),
    *_veco_shallow(),
    *_veco_scripts(),
    *_veco_small(),
  ]


def _veco_phases() -> list[runner.Row]:
  """Returns runs of tiny models for VECO tables 1 and 2 (pretraining)."""
  return [
    paper_row(
      'veco_large_phase1',
      'VECO 1, 2',
      'VECO, phase 1',
      'veco/tiny_large_phase1',
      macros=_VECO_START,
      metric='ca_mlm_pairs/cross_loss - ca_mlm_pairs/self_loss',
    ),
    paper_row(
      'veco_large_phase2',
      'VECO 1, 2',
      'VECO, phase 2',
      'veco/tiny_large_phase2',
      macros=_VECO_PHASE_1,
    ),
  ]


def _veco_translation(language: str) -> list[runner.Row]:
  """Returns runs of tiny models for VECO table 3 (translation from English)."""
  initializations = (
    ('random', 'Baseline', ()),
    ('mbart', 'mBART', (('INIT_DIR', 'veco_mbart'),)),
    ('xlmr', 'XLM-R', _VECO_START),
    ('veco', 'VECO', _VECO_PHASE_2),
  )
  return [
    paper_row(
      f'veco_wmt_{language}_{file}',
      'VECO 3',
      f'{title}, en-{language}',
      f'veco/tiny_wmt14_en_{language}_{file}',
      macros=macros,
    )
    for file, title, macros in initializations
  ]


def _veco_scripts() -> list[runner.Row]:
  """Returns runs of tiny models that use the settings of VECO's scripts.

  The runs belong to VECO table 3.
  """
  return [
    paper_row(
      f'veco_script_{language}',
      'VECO 3',
      f'VECO, en-{language}, as the script',
      f'veco/tiny_script_en_{language}',
      macros=_VECO_PHASE_2,
    )
    for language in ('de', 'fr')
  ]


def _veco_shallow() -> list[runner.Row]:
  """Returns runs of tiny models for VECO table 4 (3 or 6 decoder layers)."""
  decoders = (
    ('random_3', 'random, 3', ()),
    ('random_6', 'random, 6', ()),
    ('first_3', 'VECO, first-3', _VECO_PHASE_2),
    ('last_3', 'VECO, last-3', _VECO_PHASE_2),
    ('first_6', 'VECO, first-6', _VECO_PHASE_2),
    ('last_6', 'VECO, last-6', _VECO_PHASE_2),
  )
  return [
    paper_row(
      f'veco_shallow_{file}',
      'VECO 4',
      title,
      f'veco/tiny_shallow_{file}',
      macros=macros,
    )
    for file, title, macros in decoders
  ]


def _veco_small() -> list[runner.Row]:
  """Returns runs of tiny models for VECO table 5 (small models, fine-tuned)."""
  models = (
    ('small_mlm', 'XLM, MLM, mono.'),
    ('small_mbart', 'mBART, MLM, mono.'),
    ('small_ca_mlm', 'VECO, CA-MLM, mono.'),
    ('small_mlm_tlm', 'XLM, MLM+TLM, bili.'),
    ('small_mbart_tlm', 'mBART, MLM+TLM, bili.'),
    ('small_ca_mlm_tlm', 'VECO, CA-MLM+TLM, bili.'),
  )
  return [
    row
    for file, title in models
    for row in (
      paper_row(f'veco_{file}', 'VECO 5', title, f'veco/tiny_{file}'),
      _veco_small_translation(file, title),
    )
  ]


def _veco_small_translation(file: str, title: str) -> runner.Row:
  """Returns the translation run for a small model in VECO table 5."""
  return paper_row(
    f'veco_iwslt_{file}',
    'VECO 5',
    f'{title}, de-en',
    f'veco/tiny_iwslt14_{file}',
    macros=(('INIT_DIR', f'veco_{file}'),),
    flags=(
      "--gin.PARALLEL='corpus.parallel.en_de'",
      "--gin.sides/dataset_config.PairOptions.order='reversed'",
    ),
  )


ROWS = ecs_rows() + veco_rows() + ppa_rows() + metaxlm_rows()
