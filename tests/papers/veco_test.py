"""Tests of the gin files of VECO."""

import pathlib
import re

import pytest

from tests import gin_files
from tests.papers import rows
from tests.slow import mark_slow
from xlflax.config import gin_config
from xlflax.data import dataset_config
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.training import param_tree, training_setup
from xlflax.training.initialization import decoder_initialization

_ROWS = rows.of_paper(
  'veco',
  (
    'settings',
    'small_settings',
    'small_encoder',
    'small_encoder_decoder',
    'translation',
    'script',
    'tiny',
    'tiny_settings',
    'tiny_translation',
    'tiny_xlmr',
    'tiny_mbart',
  ),
)
_PRETRAINING = [r for r in _ROWS if r.startswith(('large', 'small'))]
_TRANSLATION = [r for r in _ROWS if r.startswith(('wmt14', 'shallow'))]
_SCRIPTS = [r for r in _ROWS if r.startswith('script')]
_IWSLT = [r for r in _ROWS if r.startswith('iwslt14')]


def test_gin_files_cover_the_tables():
  assert set(_ROWS) == {*_PRETRAINING, *_TRANSLATION, *_IWSLT, *_SCRIPTS}
  assert (len(_PRETRAINING), len(_TRANSLATION), len(_IWSLT)) == (8, 15, 6)


# A trace takes one to six CPU seconds, so all rows except one of each kind are slow.
@pytest.mark.parametrize(
  'row',
  mark_slow(
    _PRETRAINING,
    slow=set(_PRETRAINING) - {'large_phase2', 'small_mlm', 'small_mbart'},
  ),
)
def test_published_settings_of_pretraining(row):
  """The values are those of section 4 and table 8."""
  settings = rows.trace('veco', row)
  large = row.startswith('large')
  assert rows.sizes(settings.model.config) == (
    (24, 1024, 4096, 16) if large else (6, 768, 3072, 12)
  )
  assert rows.rates(settings, 12_000) == pytest.approx(
    [2e-4 if large else 3e-4]
  )
  for read in settings.datasets:
    mono = read.name in ('mono', 'adjacent')
    assert (read.length, read.batch_size, read.alpha) == (
      (512, 1024, 0.5) if mono else (128, 4096, 0.5)
    )
  for entry in settings.objectives.entries:
    assert entry.objective.mask_ratio == (
      0.15 if entry.dataset in ('mono', 'adjacent') else 0.25
    )


def test_phases_have_the_published_steps_and_trained_parameters():
  """The total is 240k steps. The first phase trains only the cross-attention."""
  first, second = (rows.settings('veco', f'large_phase{i}') for i in (1, 2))
  assert first.num_train_steps + second.num_train_steps == 240_000
  body, plug_in = (
    'model/layers/attention/query/kernel',
    'model/layers/cross_attention/query/kernel',
  )
  assert [first.optimizer.is_trainable(n) for n in (body, plug_in)] == [
    False,
    True,
  ]
  assert [second.optimizer.is_trainable(n) for n in (body, plug_in)] == [
    True,
    True,
  ]
  assert not first.init_from.should_initialize(
    plug_in
  ) and first.init_from.should_initialize(body)
  assert second.init_from.should_initialize(plug_in)
  layouts = {
    e.objective.name: next(
      s.layout for s in second.datasets if s.name == e.dataset
    )
    for e in second.objectives.entries
  }
  assert layouts == {
    'ca_mlm': dataset_config.ExampleLayout.INTERLEAVED,
    'ca_mlm_pairs': dataset_config.ExampleLayout.DUAL,
    'tlm': dataset_config.ExampleLayout.PAIRS,
  }


@pytest.mark.parametrize(
  'row, objectives',
  [
    ('small_mlm', {'mlm'}),
    ('small_mlm_tlm', {'mlm', 'tlm'}),
    ('small_ca_mlm', {'ca_mlm'}),
    ('small_ca_mlm_tlm', {'ca_mlm', 'ca_mlm_pairs', 'tlm'}),
    ('small_mbart', {'masked_seq2seq'}),
    ('small_mbart_tlm', {'masked_seq2seq', 'translation'}),
  ],
)
def test_settings_of_the_ablations_of_table_5(row, objectives):
  settings = rows.settings('veco', row)
  assert {o.name for o in settings.objectives.objectives} == objectives
  assert settings.num_train_steps == 240_000


@pytest.mark.parametrize(
  'row',
  mark_slow(
    _TRANSLATION + _IWSLT,
    slow={*_TRANSLATION, *_IWSLT} - {'shallow_last_3', 'wmt14_en_de_mbart'},
  ),
)
def test_published_settings_of_translation(row):
  """The values are those of section 6.1 and tables 3 and 4."""
  settings = rows.trace('veco', row)
  assert settings.objectives.objectives[0].name == 'translation'
  config = settings.model.config
  small, shallow = row in _IWSLT, row.startswith('shallow')
  if not small:
    assert settings.num_train_steps == 100_000
    assert rows.rates(settings, 16_000) == pytest.approx(
      [2e-4 if '_fr_' in row else 1e-4]
    )
  if 'mbart' in row:
    return
  assert config.tie_decoder
  assert config.num_encoder_layers == (6 if small else 24)
  assert config.num_decoder_layers == (
    int(row[-1]) if shallow else 6 if small else 24
  )
  if shallow:
    assert config.tied_layers == ('first' if 'first' in row else 'last')


@pytest.mark.parametrize(
  'row, fresh',
  [
    ('wmt14_en_de_random', None),
    ('wmt14_en_de_veco', False),
    ('wmt14_en_de_xlmr', True),
    ('wmt14_en_fr_xlmr', True),
    ('shallow_random_3', None),
    ('shallow_first_3', False),
    ('iwslt14_small_mlm', True),
    ('iwslt14_small_ca_mlm_tlm', False),
  ],
)
def test_decoder_initialization_of_rows(row, fresh):
  init = rows.settings('veco', row).init_from
  assert (init is None) == (fresh is None)
  if init is not None:
    initialization = decoder_initialization.CrossAttention
    assert init.decoder.cross_attention is (
      initialization.RANDOM if fresh else initialization.PLUG_IN
    )


def _departures() -> list[tuple[str, str, str, str]]:
  """Returns (setting, direction, paper, script) rows of measured/papers.md."""
  rows_of = re.compile(r'\| `(\S+)` \| (en-\w\w) \| (\S+)[^|]* \| (\S+) \|')
  text = pathlib.Path('docs/measured/papers.md').read_text()
  return [
    row_match.groups()
    for row_match in map(rows_of.match, text.splitlines())
    if row_match
  ]


def test_documented_departures_match_the_gin_files():
  """The table contains the values of both gin files."""
  departures = _departures()
  assert len(departures) >= 20
  for setting, direction, paper, script in departures:
    code = direction.replace('-', '_')
    for row, value in (
      (f'wmt14_{code}_veco', paper),
      (f'script_{code}', script),
    ):
      loaded = gin_config.load_gin_files(
        [f'papers/veco/{row}.gin'],
        ["MODEL_DIR='a'", "VOCABULARY='b'", "CORPUS='c'", "INIT_DIR='d'"],
      )
      read = loaded.parameter if '.' in setting else loaded.macro
      assert str(read(setting)) == value or (
        float(read(setting)) == float(value)
      ), (row, setting)


@pytest.mark.parametrize('row', mark_slow(_SCRIPTS, slow=['script_en_fr']))
def test_script_rows_use_all_parameters_of_veco_except_the_head(row):
  settings = rows.tiny_settings('veco', row)
  init = settings.init_from
  script_params, veco_params = (
    param_tree.flatten_params(
      training_setup.Setup(run_settings).factory.abstract.params
    )
    for run_settings in (settings, rows.tiny_settings('veco', 'large_phase2'))
  )
  used = {
    init.source_name(name)
    for name in script_params
    if init.should_initialize(name)
  }
  assert used <= veco_params.keys()
  unused = {
    name
    for name in veco_params
    if name not in used and name.startswith('model/')
  }
  assert unused and not any(init.must_use(name, used) for name in unused)
  assert all('head_' in name or 'output_bias' in name for name in unused)


@pytest.mark.parametrize(
  'row',
  mark_slow(
    [r for r in _ROWS if not r.startswith('shallow') and '_mbart' not in r],
    slow=set(_ROWS) - {'script_en_de', 'small_ca_mlm'},
  ),
)
def test_tiny_configuration_has_the_methods_of_its_row(row):
  rows.check_tiny_row('veco', row)


@pytest.mark.parametrize(
  'row', mark_slow(['tiny_xlmr', 'tiny_mbart'], slow=['tiny_mbart'])
)
def test_initialization_of_tiny_configurations(row):
  settings = rows.trace('veco', row)
  assert settings.num_train_steps <= 2000
  assert settings.model.config.hidden_dim <= 128


@pytest.mark.slow
@pytest.mark.parametrize(
  'row', [r for r in _ROWS if r.startswith('shallow') or '_mbart' in r]
)
def test_tiny_configurations_of_other_rows(row):
  settings = rows.tiny_settings('veco', row)
  gin_files.trace_steps(settings)
  assert settings.num_train_steps <= 2000
  assert settings.model.config.hidden_dim <= 128


@pytest.mark.parametrize(
  'row, size', [('large_phase2', 662e6), ('small_ca_mlm_tlm', 247e6)]
)
def test_number_of_parameters(row, size):
  """The expected numbers are those of table 8."""
  settings = rows.settings(
    'veco',
    row,
    vocabulary=vocabulary_spec.make_dummy_spec(250_002, num_languages=50),
  )
  assert rows.parameters(settings) == pytest.approx(size, rel=0.04)
