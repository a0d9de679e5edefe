"""Gin files for T5X, parsed by T5X, built and traced."""

import copy
import pathlib
import sys

import gin
import jax
import jax.numpy as jnp
import pytest

from tests import gin_files
from tests.interop.t5x import conftest
from xlflax.config import gin_config
from xlflax.data.tokenizers import vocabulary_training

train = conftest.import_t5x('t5x.train')

import t5x  # noqa: E402
from t5x import eval as t5x_eval  # noqa: E402
from t5x import gin_utils, infer, models  # noqa: E402

_FILES = gin_files.list_gin_files('t5x')
_PARTS = ('t5x/tasks.gin', 't5x/model.gin')
_MODELS = {
  't5x/encoder_mlm.gin': 'models/tiny.gin',
  't5x/encoder_tlm.gin': 'models/tiny.gin',
  't5x/encoder_decoder.gin': 'models/tiny_t5.gin',
}
_TRAININGS = {
  f't5x/train_{name.removeprefix("t5x/")}': size
  for name, size in _MODELS.items()
}
_LENGTHS = {'t5x/encoder_mlm.gin': ('corpus.mono', {'targets': 16})}
_PAIRS = ('corpus.parallel', {'inputs': 16, 'targets': 16})


def _model_file(file):
  return 't5x/' + file.removeprefix('t5x/train_').removeprefix('t5x/')


@pytest.fixture
def parse(monkeypatch, tmp_path, registry, toy_corpus, toy_vocabulary):
  """Fixture that parses gin files like the scripts of T5X."""
  vocabulary = tmp_path / 'vocabulary'
  vocabulary_training.write_vocabulary(
    toy_vocabulary,
    toy_vocabulary.description | toy_vocabulary.describe(),
    vocabulary,
  )

  def run(script, files, **macros):
    monkeypatch.setitem(sys.modules, '__main__', script)
    gin.clear_config()
    macros = (
      dict(VOCABULARY_DIR=str(vocabulary), CORPUS_DIR=str(toy_corpus.directory))
      | macros
    )
    gin_utils.parse_gin_flags(
      [str(gin_config.SHIPPED), str(pathlib.Path(t5x.__file__).parents[1])],
      files,
      [f'{name} = {value!r}' for name, value in macros.items()],
    )

  yield run
  gin.clear_config()


def _value(macro):
  return copy.deepcopy(gin.query_parameter(f'{macro}/macro.value'))


def _trace(model, dataset_name, lengths):
  """Returns the shapes of the loss of a batch of the T5X pipeline."""
  import seqio

  provider = seqio.get_mixture_or_task(dataset_name)
  converter = model.FEATURE_CONVERTER_CLS(pack=False)
  dataset = converter(
    provider.get_dataset(lengths, split='train', shuffle=False), lengths
  )
  row = next(iter(dataset.as_numpy_iterator()))
  batch = {key: jnp.asarray(value)[None] for key, value in row.items()}

  def losses():
    variables = model.get_initial_variables(jax.random.PRNGKey(0), {})
    return model.loss_fn(variables['params'], batch, jax.random.PRNGKey(1))

  return jax.eval_shape(losses)


def test_every_file_is_tested():
  assert set(_FILES) == {
    *_PARTS,
    *_MODELS,
    *_TRAININGS,
    't5x/eval.gin',
    't5x/infer.gin',
  }


@pytest.mark.parametrize('file', _TRAININGS)
def test_training_files_build_and_trace(parse, file):
  tasks, lengths = _LENGTHS.get(_model_file(file), _PAIRS)
  parse(
    train,
    [_TRAININGS[file], file],
    MODEL_DIR='runs/a',
    TRAIN_STEPS=3,
    TASKS=tasks,
    TASK_FEATURE_LENGTHS=lengths,
  )
  model = _value('MODEL')
  assert isinstance(model, models.BaseModel)
  loss, metrics = _trace(model, _value('MIXTURE_OR_TASK_NAME'), lengths)
  assert loss.shape == () and f'{model.objective.name}/loss/en' in metrics
  packed = gin.query_parameter('train/t5x.utils.DatasetConfig.pack')
  assert packed is (file != 't5x/train_encoder_decoder.gin')


@pytest.mark.parametrize('file', _MODELS)
@pytest.mark.parametrize(
  'script, use, output',
  [
    (t5x_eval, 't5x/eval.gin', 'EVAL_OUTPUT_DIR'),
    (infer, 't5x/infer.gin', 'INFER_OUTPUT_DIR'),
  ],
)
def test_evaluation_and_inference_files_build(parse, file, script, use, output):
  tasks, lengths = _LENGTHS.get(file, _PAIRS)
  parse(
    script,
    [_MODELS[file], file, use],
    CHECKPOINT_PATH='runs/a',
    TASKS=tasks,
    TASK_FEATURE_LENGTHS=lengths,
    **{output: 'out'},
  )
  model = _value('MODEL')
  assert model.objective.name in ('mlm', 'tlm', 'translation')
  assert _value('MIXTURE_OR_TASK_NAME') == f'{tasks}.t5x'
  assert (
    gin.query_parameter('t5x.utils.RestoreCheckpointConfig.path') is not None
  )
