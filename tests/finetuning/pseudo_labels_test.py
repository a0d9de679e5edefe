import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import read_only
from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised.sources import example_source
from xlflax.finetuning import pseudo_labels
from xlflax.objectives.finetuning import token_classification
from xlflax.training import train_state
from xlflax.training.checkpointing import checkpoints, objective_config
from xlflax.utils import errors

pytest_plugins = ['tests.finetuning.fixtures']
_LABELS = ('DET', 'NOUN', 'VERB')


@pytest.fixture(scope='module')
def teacher(make_run, eval_model, tmp_path_factory):
  """Run with a randomly initialized tagging head."""
  objective = token_classification.TokenClassification(labels=_LABELS)
  directory = make_run(tmp_path_factory.mktemp('teacher') / 'run')
  objective_config.write_objectives(
    directory, [objective], {objective.name: {'length': 32}}
  )
  heads = {
    objective.name: {
      'output': {
        'kernel': np.random.default_rng(0).normal(size=(16, 3)).astype('f'),
        'bias': np.zeros(3, 'f'),
      }
    }
  }
  saved = checkpoints.Checkpoints(
    directory, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  saved.save(
    train_state.TrainState(
      step=jnp.int32(5),
      params=eval_model.params | {'heads': jax.tree.map(jnp.asarray, heads)},
      opt_state={'m': jnp.zeros(2)},
      ema=(),
      objective_state={},
    ),
    {'seed': 0},
  )
  saved.close()
  return str(directory)


def test_pseudo_labels_are_readable_training_data(teacher, tmp_path):
  text = tmp_path / 'de.txt'
  text.write_text(
    '\ufeffder Hund schläft\n\nund die kleine Katze\n', encoding='utf-8'
  )
  source = pseudo_labels.WordLines(files={'de': str(text)})
  with read_only.only_read(pathlib.Path(teacher)):
    files = pseudo_labels.pseudo_label(
      teacher=teacher, source=source, output=str(tmp_path / 'labeled')
    )
  assert files == {'de': str(tmp_path / 'labeled' / 'de.conll')}
  # The output can be read as labeled examples.
  first, second = example_source.FileDataset(format='conll', files=files).load(
    'de'
  )
  assert first.words == ('der', 'Hund', 'schläft')
  assert second.words == ('und', 'die', 'kleine', 'Katze')
  assert {*first.tags, *second.tags} <= set(_LABELS)
  again = pseudo_labels.pseudo_label(  # Existing labels are ignored.
    teacher=teacher,
    output=str(tmp_path / 'again'),
    source=example_source.FileDataset(format='conll', files=files),
  )
  assert open(again['de']).read() == open(files['de']).read()


def test_languages_outside_the_vocabulary_are_reported(
  teacher, tmp_path, caplog
):
  text = tmp_path / 'text'
  text.write_text('der Hund schläft\n', encoding='utf-8')
  pseudo_labels.pseudo_label(
    teacher=teacher,
    source=pseudo_labels.WordLines(files={'de': str(text), 'deu': str(text)}),
    output=str(tmp_path / 'labeled'),
  )
  [message] = [
    record.getMessage()
    for record in caplog.records
    if record.levelname == 'WARNING'
  ]
  assert_mentions(message, 'deu', 'de')


def test_text_without_words_is_rejected(teacher, tmp_path):
  (tmp_path / 'de.txt').write_text('\n \n')
  with raises_error(errors.CorpusError, where='run'):
    pseudo_labels.pseudo_label(
      teacher=teacher,
      output=str(tmp_path / 'out'),
      source=pseudo_labels.WordLines(files={'de': str(tmp_path / 'de.txt')}),
    )


@pytest.mark.parametrize(
  ('labeled', 'line', 'num_columns'),
  [
    ('# sent_id = 1\n1\tder\tder\tDET\t_\t_\t2\tdet\t_\t_\n', 2, 10),
    ('der\tDET\nHund\tNOUN\n', 1, 2),
  ],
)
def test_labeled_files_instead_of_text_are_rejected(
  labeled, line, num_columns, tmp_path
):
  path = tmp_path / 'de.conllu'
  path.write_text(labeled)
  with raises_error(
    errors.CorpusError,
    where=f'{path}:{line}',
    expected='one sentence per line, with spaces between words',
    mentions=(
      num_columns,
      '--gin_file=evaluate/tagging.gin',
      f"--gin.TEST_FILES=\"{{'de': '{path}'}}\"",
    ),
  ):
    pseudo_labels.WordLines(files={'de': str(path)}).load('de')


def test_teacher_without_a_tagging_head_is_rejected(make_run, tmp_path):
  run = make_run(tmp_path / 'run', [1])
  with raises_error(
    errors.ConfigError,
    where='run',
    mentions=('TokenClassification', 'finetune/tagging.gin'),
  ):
    pseudo_labels.pseudo_label(
      teacher=str(run),
      output=str(tmp_path / 'out'),
      source=pseudo_labels.WordLines(files={}),
    )
