"""Distillation, compared with NumPy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from tests.models import random_parameters
from tests.slow import mark_slow
from xlflax.models.encoder import Encoder
from xlflax.models.encoder_config import EncoderConfig
from xlflax.objectives import losses, model_calls
from xlflax.objectives.pretraining.distillation import Distillation
from xlflax.training.checkpointing import run_directory
from xlflax.training.initialization import teachers
from xlflax.utils import errors

MODEL = Encoder(
  EncoderConfig(
    num_layers=1,
    hidden_dim=8,
    mlp_dim=16,
    num_heads=2,
    max_position_embeddings=14,
    vocab_size=23,
    pad_vocab_size_multiple=1,
    num_languages=3,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
    scan_layers=False,
  )
)
# The teacher has a different width, a vocabulary of 12 and one language.
TEACHER = Encoder(
  dataclasses.replace(
    MODEL.config, hidden_dim=4, vocab_size=12, num_languages=1
  )
)
UNKNOWN = 3
# Teacher id of each student id: the special symbols 0 to 4, then 15 of 16 words.
# The teacher has one id for 6 and 7, and one for 8, 9 and 11.
SOURCE = np.array(
  [
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    6,
    7,
    7,
    -1,
    7,
    -1,
    8,
    9,
    10,
    11,
    -1,
    -1,
    -1,
    -1,
    -1,
    -1,
  ]
)
SCORED = (SOURCE >= 0) & (np.arange(23) > 4)


PARAMS = {'model': random_parameters.draw_parameters(MODEL)}
TEACHER_PARAMS = random_parameters.draw_parameters(TEACHER, seed=1)


def _write(directory, model):
  run_directory.write_model(directory, model)
  return str(directory)


def _teacher(directory):
  return teachers.Teacher(model_dir=directory)


@pytest.fixture(scope='module')
def teacher_dir(tmp_path_factory):
  return _write(tmp_path_factory.mktemp('teacher'), TEACHER)


@pytest.fixture
def distill(teacher_dir):
  return Distillation(
    teacher=_teacher(teacher_dir), mask_ratio=0.5, temperature=2.0
  )


def _state(
  temperature=2.0, source=SOURCE, scored=SCORED, params=TEACHER_PARAMS
):
  return {
    'teacher': teachers.reorder_embeddings(
      params, source, scored, unknown=UNKNOWN, temperature=temperature
    ),
    'matched': scored,
    'language': np.int32(0),
  }


_CONTEXT = {}


@pytest.fixture(autouse=True)
def _make_context(context):
  _CONTEXT['make'] = lambda rng, state: dataclasses.replace(
    context(), rng=rng, state=state
  )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run(objective, model, params, state, batch):
  def total(params, state):
    output = objective(
      model, params, batch, _CONTEXT['make'](jax.random.key(0), state)
    )
    return output.loss.total, output._replace(state=())

  (_, output), gradients = jax.value_and_grad(
    total, has_aux=True, argnums=(0, 1), allow_int=True
  )(params, state)
  return output, gradients


def run(objective, batch, *, params=PARAMS, state=None, model=MODEL):
  return _run(
    objective, model, params, _state() if state is None else state, batch
  )


def _softmax(scores):
  powers = np.exp(scores - scores.max(-1, keepdims=True))
  return powers / powers.sum(-1, keepdims=True)


@functools.partial(jax.jit, static_argnums=0)
def _masked(objective, batch):
  """Returns the masked batch, the choice and the logits of both models."""
  context = _CONTEXT['make'](jax.random.key(0), ())
  masked, choice = objective._masked_lm.mask(
    batch, context, jax.random.split(context.rng)[0]
  )
  read = jnp.asarray(np.where(SOURCE >= 0, SOURCE, UNKNOWN))[masked]
  student, teacher = (
    model.apply({'params': params}, ids, **model_calls.model_kwargs(batch))
    for model, params, ids in (
      (MODEL, PARAMS['model'], masked),
      (TEACHER, TEACHER_PARAMS, read),
    )
  )
  return choice, student, teacher


def _logits(objective, batch):
  choice, *logits = _masked(objective, batch)
  return choice, *(np.asarray(x, np.float64) for x in logits)


def _oracle(objective, batch, temperature):
  """Returns loss, agreement, and numbers of chosen and scored positions.

  The teacher reads ids of its own vocabulary.
  """
  choice, student, teacher = _logits(objective, batch)
  losses, agreement, chosen = [], [], 0
  word_ids = np.flatnonzero(SCORED)
  for row, (positions, weights) in enumerate(
    zip(np.asarray(choice.positions), np.asarray(choice.weights), strict=True)
  ):
    if batch['language_ids'][row].any():
      continue  # The sequence is German or French.
    for position in positions[weights > 0]:
      chosen += 1
      if not SCORED[batch['token_ids'][row, position]]:
        continue
      p_teacher = _softmax(teacher[row, position] / temperature)
      shared = np.bincount(SOURCE[word_ids])
      p = p_teacher[SOURCE[word_ids]] / shared[SOURCE[word_ids]]
      p /= p.sum()
      q = _softmax(student[row, position][word_ids] / temperature)
      losses.append(temperature**2 * (p * np.log(p / q)).sum())
      agreement.append(p.argmax() == q.argmax())
  return np.sum(losses), np.sum(agreement), chosen, len(losses)


@pytest.mark.parametrize('temperature', mark_slow([1.0, 2.0], slow=[1.0]))
def test_loss_and_metrics_equal_numpy(distill, batch, temperature):
  objective = dataclasses.replace(distill, temperature=temperature)
  output, _ = run(objective, batch, state=_state(temperature))
  loss, agreement, chosen, count = _oracle(distill, batch, temperature)
  assert 0 < count < chosen == 6
  np.testing.assert_allclose(output.loss.total, loss, rtol=1e-4)
  assert output.loss.weight == count
  named = {k.removeprefix('distill/'): v for k, v in output.metrics.items()}
  np.testing.assert_allclose(named['loss'].total, [loss, 0, 0], rtol=1e-4)
  np.testing.assert_array_equal(named['loss'].weight, [count, 0, 0])
  np.testing.assert_array_equal(named['agreement'].total, [agreement, 0, 0])
  np.testing.assert_array_equal(named['coverage'].total, [count, 0, 0])
  np.testing.assert_array_equal(named['coverage'].weight, [chosen, 0, 0])
  np.testing.assert_array_equal(named['tokens'].total, [14, 18, 2])


@pytest.mark.slow
def test_mlm_weight_adds_the_masked_lm_loss(distill, batch):
  """The masked LM loss is the mean over chosen tokens of all languages."""
  objective = dataclasses.replace(distill, mlm_weight=0.5)
  alone, _ = run(distill, batch)
  combined, _ = run(objective, batch)
  choice, logits, _ = _logits(distill, batch)
  losses = [
    -np.log(_softmax(logits[row, position]))[batch['token_ids'][row, position]]
    for row, (places, weights) in enumerate(
      zip(np.asarray(choice.positions), np.asarray(choice.weights), strict=True)
    )
    for position in places[weights > 0]
  ]
  want = alone.loss.total / alone.loss.weight + 0.5 * np.mean(losses)
  np.testing.assert_allclose(
    combined.loss.total / combined.loss.weight, want, rtol=1e-4
  )
  assert combined.metrics['distill/masked_lm_loss'].weight == len(losses)


@pytest.mark.slow
def test_chunks_do_not_change_loss_and_gradient(distill, batch):
  """The chunks have three of seven slots."""
  chunked = dataclasses.replace(distill, chunk_size=3)
  want, want_gradients = run(distill, batch)
  got, gradients = run(chunked, batch)
  np.testing.assert_allclose(got.loss, want.loss, rtol=1e-5)
  np.testing.assert_allclose(
    got.metrics['distill/agreement'].total,
    want.metrics['distill/agreement'].total,
  )
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5),
    gradients[0],
    want_gradients[0],
  )


def test_student_equal_to_the_teacher_has_zero_loss(distill, batch, tmp_path):
  objective = dataclasses.replace(
    distill, teacher=_teacher(_write(tmp_path, MODEL))
  )
  source = np.arange(23)
  scored = (source > 4) & (source != 10) & (source != 22)
  state = _state(2.0, source, scored, PARAMS['model'])
  output, (gradient, _) = run(objective, batch, state=state)
  assert output.loss.weight == 6
  np.testing.assert_allclose(output.loss.total, 0, atol=1e-5)
  assert output.metrics['distill/agreement'].total[0] == 6
  assert all(np.abs(g).max() < 1e-4 for g in jax.tree.leaves(gradient))


def test_other_languages_have_weight_zero(distill, batch):
  """A sequence with one foreign word has weight zero, too."""
  foreign = {**batch, 'language_ids': batch['language_ids'].copy()}
  foreign['language_ids'][0, 3] = 2
  output, (gradient, _) = run(distill, foreign)
  assert output.loss == (0.0, 0.0)
  assert output.metrics['distill/coverage'].weight.sum() == 0
  assert all((g == 0).all() for g in jax.tree.leaves(gradient))
  english = jax.tree.map(lambda x: x[:1], batch)
  alone, _ = run(
    distill,
    jax.tree.map(
      lambda x: np.concatenate([x, np.zeros((3, 14), np.int32)]), english
    ),
  )
  together, _ = run(distill, batch)
  np.testing.assert_allclose(alone.loss, together.loss, rtol=1e-5)


def test_teacher_has_no_gradient(distill, batch):
  _, (student_gradient, state_gradient) = run(distill, batch)
  for leaf in jax.tree.leaves(state_gradient['teacher']):
    assert (leaf == 0).all()
  assert (student_gradient['model']['embeddings']['token'] != 0).any()
  bias = np.asarray(student_gradient['model']['output_bias'])
  assert (bias[SCORED] != 0).all() and (bias[~SCORED] == 0).all()


def test_gradient_equals_finite_differences(distill, batch):
  _, (gradient, _) = run(distill, batch)
  rng = np.random.default_rng(0)
  direction = jax.tree.map(
    lambda x: rng.normal(size=x.shape).astype(np.float32), PARAMS
  )

  def total(scale):
    moved = jax.tree.map(
      lambda p, d: p + np.float32(scale) * d, PARAMS, direction
    )
    return run(distill, batch, params=moved)[0].loss.total

  numerical = (total(2e-3) - total(-2e-3)) / 4e-3
  dots = jax.tree.map(lambda g, d: np.sum(g * d), gradient, direction)
  np.testing.assert_allclose(sum(jax.tree.leaves(dots)), numerical, rtol=2e-2)


def test_empty_batch_has_zero_loss_and_gradient(distill, batch):
  output, (gradient, _) = run(distill, jax.tree.map(np.zeros_like, batch))
  assert output.loss == (0.0, 0.0)
  assert all((g == 0).all() for g in jax.tree.leaves(gradient))


_kl = jax.jit(losses.kl_divergence, static_argnames='temperature')


def test_kl_computed_by_hand():
  """Teacher (3/4, 1/4) and student (1/2, 1/2), with an excluded token."""
  teacher = jnp.log(jnp.array([[3.0, 1.0, 50.0]]))
  student = jnp.log(jnp.array([[2.0, 2.0, 9.0]]))
  support = jnp.array([True, True, False])
  want = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
  loss, same = losses.kl_divergence(teacher, student, support, temperature=1.0)
  np.testing.assert_allclose(loss, [want], rtol=1e-5)
  assert same == 1
  # T = 2 takes the square roots.
  squared = jnp.log(jnp.array([[9.0, 1.0, 50.0]]))
  loss, _ = losses.kl_divergence(squared, student, support, temperature=2.0)
  np.testing.assert_allclose(loss, [4 * want], rtol=1e-5)


def test_kl_equals_its_subset_and_gradient_formula():
  rng = np.random.default_rng(0)
  teacher, student = rng.normal(size=(2, 2, 3, 6)).astype(np.float32)
  support = np.array([1, 1, 0, 1, 0, 1], bool)
  eager = losses.kl_divergence(teacher, student, support, temperature=0.7)
  compiled = _kl(teacher, student, support, temperature=0.7)
  assert eager.loss.shape == eager.correct.shape == (2, 3)
  np.testing.assert_allclose(compiled.loss, eager.loss, rtol=1e-5)
  part = _kl(
    teacher[..., support],
    student[..., support],
    np.ones(4, bool),
    temperature=0.7,
  )
  np.testing.assert_allclose(part.loss, eager.loss, rtol=1e-4)

  def total(student):
    return jnp.sum(_kl(teacher, student, support, temperature=0.7).loss)

  p, q = (_softmax(x[..., support] / 0.7) for x in (teacher, student))
  gradient = jax.grad(total)(student)
  np.testing.assert_allclose(gradient[..., support], 0.7 * (q - p), atol=1e-5)
  assert (gradient[..., ~support] == 0).all()


def test_kl_of_degenerate_inputs_is_finite():
  teacher = jnp.array([[1e4, -1e9, -1e9]])
  student = jnp.array([[-1e4, 0.0, 1e4]])

  def total(student, support):
    return jnp.sum(_kl(teacher, student, support, temperature=1.0).loss)

  for support in (np.ones(3, bool), np.zeros(3, bool)):
    loss, gradient = jax.value_and_grad(total)(student, support)
    assert np.isfinite(loss) and np.isfinite(gradient).all()
    assert support.any() or (loss == 0 and (gradient == 0).all())


@pytest.mark.parametrize(
  'settings, got',
  [({'temperature': 0}, 0), ({'chunk_size': 0}, 0), ({'mask_ratio': 1.5}, 1.5)],
)
def test_invalid_settings_are_rejected(settings, got):
  with raises_error(errors.ConfigError, got=got):
    Distillation(teacher=_teacher('x'), **settings)


def test_teacher_without_a_model_is_rejected(tmp_path, vocabulary):
  with raises_error(errors.RunDirectoryError, mentions='model.json'):
    Distillation(teacher=_teacher(str(tmp_path))).init_state(
      MODEL, PARAMS, vocabulary
    )


def test_unknown_language_is_rejected(distill, vocabulary):
  objective = dataclasses.replace(distill, language='xx')
  with raises_error(
    errors.ConfigError, got='xx', mentions=("'distill'", 'en', 'de', 'fr')
  ):
    objective.init_state(MODEL, PARAMS, vocabulary)


def test_sequences_longer_than_the_teacher_are_rejected(
  distill, batch, tmp_path
):
  short = Encoder(
    dataclasses.replace(TEACHER.config, max_position_embeddings=9)
  )
  objective = dataclasses.replace(
    distill, teacher=_teacher(_write(tmp_path, short))
  )
  with raises_error(errors.ConfigError, mentions=("'distill'", 14, 9)):
    run(objective, batch)


def test_initial_state_shapes(distill, vocabulary):
  state = distill.init_state(MODEL, PARAMS, vocabulary)
  want = _state()
  assert jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, want)
