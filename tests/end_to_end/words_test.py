"""Tests of fine-tuning and evaluating tagging and parsing models."""

import json

import jax
import pytest

from xlflax import cli, evaluate
from xlflax.config import gin_config
from xlflax.training.devices import partitioning

pytest_plugins = ['tests.evaluation.fixtures']

# A word's form determines its tag. A sentence is `adjective noun verb .`; in
# German the verb comes first.
_WORDS = {
  'ADJ': ('small', 'warm', 'kleine', 'warme'),
  'NOUN': ('dog', 'cat', 'Hund', 'Katze'),
  'VERB': ('sleeps', 'drinks', 'schläft', 'trinkt'),
  'PUNCT': ('.',),
}
_ORDERS = {
  'en': ('ADJ', 'NOUN', 'VERB', 'PUNCT'),
  'de': ('VERB', 'ADJ', 'NOUN', 'PUNCT'),
}
_HEADS = {
  'ADJ': ('NOUN', 'amod'),
  'NOUN': ('VERB', 'nsubj'),
  'VERB': (None, 'root'),
  'PUNCT': ('VERB', 'punct'),
}


def _treebank(language: str, count: int) -> str:
  lines = []
  for number in range(count):
    order = _ORDERS[language]
    for i, tag in enumerate(order):
      forms = _WORDS[tag]
      word = forms[(number // (1 + i) + i) % len(forms)]
      head, relation = _HEADS[tag]
      head_index = 0 if head is None else 1 + order.index(head)
      lines.append(
        '\t'.join(
          (
            str(i + 1),
            word,
            '_',
            tag,
            '_',
            '_',
            str(head_index),
            relation,
            '_',
            '_',
          )
        )
      )
    lines.append('')
  return '\n'.join(lines) + '\n'


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  folder = tmp_path_factory.mktemp('treebanks')
  for language in _ORDERS:
    (folder / language).write_text(_treebank(language, 16), encoding='utf-8')
  return {language: str(folder / language) for language in _ORDERS}


def _train(family, files, pretrained, model_dir, *bindings):
  status = cli.main(
    [
      'train',
      f'--gin_file=finetune/{family}.gin',
      f'--model_dir={model_dir}',
      f"--gin.INIT_FROM='{pretrained}'",
      f'--gin.TRAIN_FILES={files}',
      '--gin.BATCH_SIZE=16',
      '--gin.LENGTH=32',
      '--gin.LEARNING_RATE=1e-2',
      '--gin.EPOCHS=30',
      "--gin.pretrained.load_model.overrides={'dropout_rate': 0.0}",
      *bindings,
    ]
  )
  assert not status


def _evaluate(family, files, model_dir, partitioner=None):
  configuration = gin_config.load_gin_files(
    ['evaluate/tasks.gin', f'evaluate/{family}.gin'], [f'TEST_FILES={files}']
  )
  report = configuration.build(
    evaluate.evaluate, model_dir=str(model_dir), partitioner=partitioner
  )
  assert not report.failures
  path = next((model_dir / 'eval').glob('*/*/60.json'))
  return json.loads(path.read_text(encoding='utf-8'))


@pytest.mark.slow
@pytest.mark.parametrize(
  ('family', 'bindings', 'metric', 'baseline'),
  [
    ('tagging', (), 'accuracy', 'majority'),
    (
      'parsing',
      (
        '--gin.dependency_parsing.DependencyParsing.arc_dim=16',
        '--gin.dependency_parsing.DependencyParsing.relation_dim=8',
        '--gin.dependency_parsing.DependencyParsing.head_dropout=0.0',
      ),
      'las',
      'left_branching',
    ),
  ],
)
def test_fine_tuned_models_are_above_the_baseline(
  files, make_run, tmp_path, family, bindings, metric, baseline
):
  """Trains for 60 steps (30 epochs) and compares with scores on one device."""
  pretrained = make_run(tmp_path / 'pretrained', steps=(1,))
  _train(family, files, pretrained, tmp_path / 'run', *bindings)
  scores = _evaluate(family, files, tmp_path / 'run')
  for language in _ORDERS:
    score = scores['metrics'][f'{metric}/{language}']
    assert score > scores['metrics'][f'{baseline}/{language}'] + 0.2
  results = sorted((tmp_path / 'run' / 'eval').rglob('60/*'))
  assert len(results) == 2
  first = [path.read_text(encoding='utf-8') for path in results]
  for path in (tmp_path / 'run' / 'eval').glob('*/*/60.json'):
    path.unlink()
  again = _evaluate(
    family,
    files,
    tmp_path / 'run',
    partitioning.Partitioner(devices=(jax.devices()[0],)),
  )
  assert again['metrics'] == scores['metrics']
  assert [p.read_text(encoding='utf-8') for p in results] == first
