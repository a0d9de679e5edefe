"""Tests that all fine-tuning gin files can be built and traced."""

import json
import re

import numpy as np
import pytest

from tests import gin_files
from xlflax.config import gin_config
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.training.checkpointing import run_directory

_FILES = [
  f
  for f in gin_files.list_gin_files('finetune')
  if not f.endswith(('base.gin', '_slots.gin')) and '/settings/' not in f
]
_TREE = '\n'.join(
  (
    '1\tlo\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_',
    '2\tva\t_\tVERB\t_\t_\t0\troot\t_\t_',
    '',
    '',
  )
)
_SQUAD = json.dumps(
  {
    'version': '1.1',
    'data': [
      {
        'title': '',
        'paragraphs': [
          {
            'context': 'lo va',
            'qas': [
              {
                'id': '0',
                'question': 'lo ?',
                'answers': [{'text': 'va', 'answer_start': 3}],
              }
            ],
          }
        ],
      }
    ],
  }
)
_CHOICES = json.dumps(
  {
    'premise': 'lo',
    'question': 'cause',
    'choice1': 'lo',
    'choice2': 'va',
    'label': 1,
  }
)
_EXAMPLES = {  # content of the family's default format
  'classification': 'lo\tva\tyes\nva\tlo\tno\n',
  'multiple_choice': _CHOICES,
  'parsing': _TREE,
  'question_answering': _SQUAD,
  'regression': 'lo\tva\t2.5\nva\tlo\t0\n',
  'reranking': 'lo va\tva\tlo\nva\tlo\tva\n',
  'reranking_distillation': json.dumps(
    {'query': 'lo', 'positive': 'lo va', 'negatives': ['va'], 'scores': [2, -1]}
  ),
  'search': 'lo va\tva\nva\tlo\n',
  'search_distillation': 'lo va\tva\nva\tlo\n',
  'tagging': _TREE,
}
_JOINT = 'finetune/intents_and_slots.gin'  # two heads on one encoder


@pytest.mark.parametrize('file', _FILES)
def test_gin_file_builds_and_traces(monkeypatch, tmp_path, file):
  family = file.split('/')[-1].removesuffix('.gin')
  run_directory.write_model(
    tmp_path / 'pretrained',
    encoder.Encoder(
      model_config.EncoderConfig(
        num_layers=1, hidden_dim=8, mlp_dim=8, num_heads=1
      )
    ),
  )
  path = tmp_path / (
    'examples.jsonl' if family == 'reranking_distillation' else 'examples'
  )
  path.write_text(_EXAMPLES[family], encoding='utf-8')
  files = {'en': str(path)}
  vector_bindings = []
  if family == 'search_distillation':
    np.save(tmp_path / 'vectors.npy', np.zeros((2, 8), np.float32))
    vector_bindings = [f'VECTORS={ {"en": str(tmp_path / "vectors.npy")} }']
  settings = gin_files.settings_of(
    [file],
    [
      f'MODEL_DIR={str(tmp_path / "run")!r}',
      f'INIT_FROM={str(tmp_path / "pretrained")!r}',
      f'TRAIN_FILES={files}',
      'EVALUATION=@during_training.Evaluation()',
      'TRAIN_STEPS=20',
      'LENGTH=32',
      *([] if family.startswith('search') else ['HEAD_LEARNING_RATE=1e-3']),
      *(
        []
        if family.startswith(('search', 'reranking'))
        else [f'DEV_FILES={files}']
      ),
      *vector_bindings,
    ],
  )
  setup = gin_files.trace_steps(settings)
  objective = settings.objectives.entries[0].objective
  if family.startswith('search'):  # The family has no head.
    assert (
      settings.init_from.exclude
      == settings.optimizer.learning_rate_overrides
      == ()
    )
    assert objective.sentence['normalize'] == (not vector_bindings)
    return
  assert objective.name in setup.factory.abstract.params['heads']
  [task] = settings.evaluation.tasks
  assert task.objective == objective.name
  assert settings.init_from.exclude == ('heads/',)
  assert [name for name, _ in settings.optimizer.learning_rate_overrides] == [
    '^heads/'
  ]
  # Warmup is 10% of the 20 steps.
  assert settings.optimizer.rate_at(2) == pytest.approx(
    2e-5 if family.startswith('reranking') else 5e-5
  )


def test_two_heads_are_trained_on_one_encoder(tmp_path):
  run_directory.write_model(
    tmp_path / 'pretrained',
    encoder.Encoder(
      model_config.EncoderConfig(
        num_layers=1, hidden_dim=8, mlp_dim=8, num_heads=1
      )
    ),
  )
  for name, text in (
    ('intents', 'lo va\tgo\nva\tstay\n'),
    ('slots', 'lo\tO\nva\tB-a\n'),
  ):
    (tmp_path / name).write_text(text)
  files = [str({'en': str(tmp_path / name)}) for name in ('intents', 'slots')]
  settings = gin_files.settings_of(
    [_JOINT],
    [
      f'MODEL_DIR={str(tmp_path / "run")!r}',
      f'INIT_FROM={str(tmp_path / "pretrained")!r}',
      f'TRAIN_FILES={files[0]}',
      f'DEV_FILES={files[0]}',
      f'SLOT_FILES={files[1]}',
      f'SLOT_DEV_FILES={files[1]}',
      'SLOT_WEIGHT=0.5',
      'WARMUP_STEPS=4',
      'EVALUATION=@during_training.Evaluation()',
      'TRAIN_STEPS=20',
      'LENGTH=32',
    ],
  )
  setup = gin_files.trace_steps(settings)
  assert set(setup.factory.abstract.params['heads']) == {
    'sequence_classification',
    'token_classification',
  }
  intents, slots = settings.objectives.entries
  assert intents.objective.labels == ('go', 'stay') and slots.weight == 0.5
  assert slots.objective.labels == ('B-a', 'I-a', 'O')
  rates = [settings.optimizer.rate_at(step) for step in (2, 4)]
  assert rates == pytest.approx([2.5e-5, 5e-5])
  [task] = settings.evaluation.tasks
  assert task.intents.source.languages() == task.source.languages() == ('en',)
  assert task.intents.length is None and task.length is None


def test_all_task_families_have_a_gin_file():
  assert {f'finetune/{name}.gin' for name in _EXAMPLES} <= set(_FILES)


@pytest.mark.parametrize('file', [*_FILES, _JOINT, 'finetune/base.gin'])
def test_macros_in_the_header_exist(file):
  text = (gin_config.SHIPPED / file).read_text()
  header = '\n'.join(line for line in text.splitlines() if line.startswith('#'))
  text += gin_files.read_with_includes(file)
  names = re.findall(r'\b[A-Z]{3,}(?:_[A-Z]+)+\b', header)
  assert names
  for macro in names:
    assert re.search(rf'^{macro} =', text, re.M), macro
