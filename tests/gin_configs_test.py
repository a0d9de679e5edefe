"""Every shipped gin file is parsed and built, and its shapes are traced."""

import re

import pytest

from tests import gin_files
from tests.slow import mark_slow
from xlflax import evaluate
from xlflax.config import gin_config
from xlflax.evaluation import eval_task as evaluation_base
from xlflax.training.checkpointing import config_serialization, run_directory

# Files of papers/ are tested in tests/papers/, those of recipes/ in
# tests/recipes_test.py, those of t5x/ in tests/interop/t5x/, those of finetune/
# in tests/finetune_gin_test.py, those of suites/ in
# tests/finetuning/gin_files_test.py, those of languages/ in
# tests/papers/languages_test.py.
_TESTED_ELSEWHERE = (
  'papers/',
  'recipes/',
  't5x/',
  'finetune/',
  'suites/',
  'languages/',
)
_FILES = [
  f for f in gin_files.list_gin_files() if not f.startswith(_TESTED_ELSEWHERE)
]
# Included by other files; insufficient for training or evaluation alone.
_PARTIAL_FILES = (
  'pretrain/base.gin',
  'models/encoder.gin',
  'models/roberta.gin',
  'evaluate/tasks.gin',
  'models/encoder_decoder.gin',
  'models/t5.gin',
  'models/transformer.gin',
  'models/bart.gin',
)
# Files that complete partial models, unless an encoder size does.
_SIZES = {
  'models/encoder_decoder.gin': 'models/tiny_t5.gin',
  'models/t5.gin': 'models/tiny_t5.gin',
  'models/transformer.gin': 'models/tiny_transformer.gin',
  'models/bart.gin': 'models/tiny_mbart.gin',
}
_DURING_TRAINING = tuple(f for f in _FILES if f.endswith('_training.gin'))
_MACROS = dict(
  MODEL_DIR='runs/a',
  VOCABULARY='vocabulary',
  CORPUS='corpus',
  INIT_DIR='runs/encoder',
  TEACHER='runs/teacher',
)
# Files that need a model other than the tiny encoder.
_MODELS = {
  'pretrain/span_corruption.gin': 'tiny_t5',
  'pretrain/mbart.gin': 'tiny_mbart',
  'pretrain/translation.gin': 'tiny_transformer',
}


def _kind(file: str) -> str:
  return file.split('/')[0]


_EVALUATIONS = [
  f
  for f in _FILES
  if _kind(f) == 'evaluate' and f not in _PARTIAL_FILES + _DURING_TRAINING
]
_TRAININGS = [
  f for f in _FILES if f not in _PARTIAL_FILES and f not in _EVALUATIONS
]
# A trace takes two to six CPU seconds. Each objective and each kind of model is
# in one of these files; the other files are slow tests.
_QUICK = (
  'adapters/lora.gin',
  'evaluate/during_training.gin',
  'models/base.gin',
  'models/ecs.gin',
  'models/modernbert_base.gin',
  'pretrain/distillation.gin',
  'pretrain/mbart.gin',
  'pretrain/mlm.gin',
  'pretrain/mlm_tlm_contrast.gin',
  'pretrain/moco_tlm.gin',
  'pretrain/replaced_token.gin',
  'pretrain/span_corruption.gin',
  'pretrain/translation.gin',
  'pretrain/veco.gin',
)


def _with_required_files(file: str) -> list[str]:
  """Returns this file and the files that are passed together with it."""
  if _kind(file) == 'models':
    return ['pretrain/mlm.gin', file]
  if file in _DURING_TRAINING:
    return ['pretrain/mlm.gin', 'models/tiny.gin', file]
  if _kind(file) == 'adapters':
    return ['pretrain/mlm.gin', file]
  if _kind(file) == 'pretrain':
    return [file, f'models/{_MODELS.get(file, "tiny")}.gin']
  return [file]


def _text(file: str) -> str:
  """Returns the text of a file and its included files."""
  text = (gin_config.SHIPPED / file).read_text()
  return text + ''.join(map(_text, re.findall(r"^include '(.*)'", text, re.M)))


def _macros(file: str) -> list[str]:
  """Returns the used macros of `_MACROS` and the number of steps."""
  text = ''.join(map(_text, _with_required_files(file)))
  bindings = [
    f'{name}={value!r}' for name, value in _MACROS.items() if f'%{name}' in text
  ]
  if _kind(file) == 'adapters':
    bindings.append("INIT_FROM='runs/base'")
  return bindings + ['TRAIN_STEPS=2000']


@pytest.fixture
def settings_of(monkeypatch, tmp_path):
  """Fixture that parses files and returns the settings of a run."""
  monkeypatch.chdir(tmp_path)
  gin_files.write_teacher(tmp_path / 'runs' / 'teacher')
  run_directory.write_model(
    tmp_path / 'runs' / 'base', gin_files.tiny_encoder()
  )

  def build(files, bindings, **fields):
    settings, build.configuration = gin_files.settings_and_configuration(
      files, bindings, **fields
    )
    return settings

  return build


def test_every_file_is_tested():
  assert set(_TRAININGS) | set(_EVALUATIONS) | set(_PARTIAL_FILES) == set(
    _FILES
  )
  assert len(_TRAININGS) >= 9 and len(_EVALUATIONS) >= 2


@pytest.mark.parametrize(
  'file', mark_slow(_TRAININGS, slow=set(_TRAININGS) - set(_QUICK))
)
def test_training_files_build_and_trace(settings_of, file, caplog):
  """Parses and builds the file, and traces each step on eight devices."""
  settings = settings_of(_with_required_files(file), _macros(file))
  gin_files.trace_steps(settings)
  assert 'learning rate is' not in caplog.text
  if file in _DURING_TRAINING:
    tasks = settings.evaluation.tasks
    assert all(isinstance(t, evaluation_base.EvalTask) for t in tasks)
    assert settings.evaluation.is_due(1000, 5000)
    assert len({t.name for t in tasks}) == len(tasks) > 0


@pytest.mark.parametrize('file', _EVALUATIONS)
def test_evaluation_files_build_tasks(monkeypatch, file):
  received = {}

  class Stop(Exception):
    pass

  def check(tasks):
    received['tasks'] = tasks
    raise Stop

  monkeypatch.setattr(evaluate, 'check_tasks', check)
  text = (gin_config.SHIPPED / file).read_text()
  for included in re.findall(r"^include '(.*)'", text, re.M):
    text += (gin_config.SHIPPED / included).read_text()
  macros = [
    f"{name}='data'" for name in ('CORPUS', 'TATOEBA') if f'%{name}' in text
  ]
  if 'FileText.files = %TEST_FILES' in text:
    macros.append("TEST_FILES={'fr': 'file'}")
  elif '%TEST_FILES' in text:
    macros.append("TEST_FILES={'fr-en': ('first', 'second')}")
  for name in ('SLOT_TEST_FILES', 'TRAIN_FILES'):
    if f'%{name}' in text:
      macros.append(f"{name}={{'fr-en': 'file'}}")
  configuration = gin_config.load_gin_files(
    ['evaluate/tasks.gin', file], macros
  )
  with pytest.raises(Stop):
    configuration.build(evaluate.evaluate, model_dir='runs/a')
  tasks = received['tasks']
  assert tasks and all(isinstance(t, evaluation_base.EvalTask) for t in tasks)


@pytest.mark.parametrize('file', _PARTIAL_FILES)
def test_partial_files_are_included(file):
  users = [
    f
    for f in gin_files.list_gin_files()
    if f"include '{file}'" in (gin_config.SHIPPED / f).read_text()
  ]
  assert users or file == 'evaluate/tasks.gin'
  other_files = (
    [] if _kind(file) == 'evaluate' else [_SIZES.get(file, 'models/tiny.gin')]
  )
  gin_config.load_gin_files(
    [file, *other_files], _macros(file) if _kind(file) == 'pretrain' else []
  )


@pytest.mark.parametrize('file', _FILES)
def test_header_lists_common_overrides(file):
  """Checks that the listed macros exist."""
  text = (gin_config.SHIPPED / file).read_text()
  header = '\n'.join(line for line in text.splitlines() if line.startswith('#'))
  assert header, 'a comment on what the file is for'
  everything = ''.join((gin_config.SHIPPED / f).read_text() for f in _FILES)
  for macro in re.findall(r'\b[A-Z]{3,}(?:_[A-Z]+)+\b', header):
    assert re.search(rf'^{macro} =|%{macro}\b', everything, re.M), macro


def test_operative_configuration_reproduces_the_run(settings_of, tmp_path):
  """The `config.gin` of a run is a valid gin file."""
  files = [
    'pretrain/mlm_tlm_contrast.gin',
    'models/tiny.gin',
    'evaluate/during_training.gin',
  ]
  first = settings_of(
    files, [*_macros(files[0]), 'LENGTH=48', 'LEARNING_RATE=1e-3']
  )
  text = settings_of.configuration.operative()
  (tmp_path / 'config.gin').write_text(text)
  second = settings_of([str(tmp_path / 'config.gin')], [])
  for field in (
    'datasets',
    'objectives',
    'num_train_steps',
    'corpus',
    'seed',
    'checkpoints',
    'partitioner',
    'evaluation',
    'model',
  ):
    assert getattr(first, field) == getattr(second, field), field
  assert float(first.optimizer.rate_at(1500)) == float(
    second.optimizer.rate_at(1500)
  )
  assert config_serialization.config_fingerprint(
    first
  ) == config_serialization.config_fingerprint(second)


@pytest.mark.parametrize(
  ('optimizer', 'schedule'),
  [
    pytest.param('AdamW', 'WSD', marks=pytest.mark.slow),
    ('StableAdamW', 'WSD'),
    ('Muon', 'Cosine'),
    pytest.param('Adafactor', 'Linear', marks=pytest.mark.slow),
  ],
)
def test_macros_set_optimizer_schedule_and_mask_ratio(
  settings_of, optimizer, schedule
):
  file = 'pretrain/mlm.gin'
  settings = settings_of(
    _with_required_files(file),
    [
      *_macros(file),
      f'OPTIMIZER=@optimizers.{optimizer}()',
      f'SCHEDULE=@schedules.{schedule}()',
      'LEARNING_RATE=0.5',
      'WARMUP_STEPS=2',
      "NORM_POSITION='pre'",
      'DROPOUT=0.25',
      'MASK_RATIO=@schedules.Piecewise()',
      'schedules.Piecewise.values=(0.3, 0.15)',
      'schedules.Piecewise.boundaries=(1,)',
      'masked_lm.MaskedLM.max_mask_ratio=0.3',
    ],
  )
  assert type(settings.optimizer).__name__ == optimizer
  rate = settings.optimizer.learning_rate
  assert type(rate).__name__ == schedule
  assert (rate.peak_value, rate.warmup_steps) == (0.5, 2)
  config = settings.model.config
  assert config.norm_position == 'pre'
  assert config.dropout_rate == config.attention_dropout_rate == 0.25
  gin_files.trace_steps(settings)
