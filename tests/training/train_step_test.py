"""Tests of the train step."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax.objectives import objective_base, objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import param_tree, train_step
from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import errors

_SGD_LIKE = dict(learning_rate=0.1, eps=1.0)  # Adam's step is g / (|g| + 1)


def _entry(dataset='mono', weight=1.0, **fields):
  return objective_mixture.WeightedObjective(
    dataset=dataset, objective=tiny.Regression(**fields), weight=weight
  )


def _builder(*entries, **fields):
  fields = dict(optimizer=optimizers.Adam(**_SGD_LIKE), seed=0) | fields
  combine = fields.pop('combine', objective_mixture.Combine.SUM)
  return train_step.TrainStepBuilder(
    model=None,
    mixture=tiny.make_mixture(*entries, combine=combine),
    vocabulary=tiny.SPEC,
    **fields,
  )


def _run(builder, batches, *, active=(0,), steps=1, ema=False):
  state = tiny.regression_state(builder.optimizer, ema=ema)
  step = jax.jit(builder.build(active))
  outputs = []
  for _ in range(steps):
    state, output = step(state, batches)
    outputs.append(output)
  return state, outputs


def _expected_gradient(batch, weight=1.0):
  """Returns the loss and gradient of `Regression`, computed with NumPy."""
  x = batch['token_ids'].astype(np.float64) / tiny.SPEC.size
  w = np.linspace(-1.0, 1.0, x.shape[1])
  rows = (batch['segment_ids'] > 0).sum(axis=1)
  error = x @ w + 0.5 - batch['language_ids'][:, 0]
  scale = 2 * weight * rows * error / rows.sum()
  return {
    'w': x.T @ scale,
    'bias': scale.sum(),
    'loss': (rows * error**2).sum() / rows.sum(),
  }


def _moved(builder, batches, **more):
  state, outputs = _run(builder, batches, **more)
  first = tiny.regression_state(builder.optimizer).params['model']
  return {
    k: np.asarray(v - first[k]) for k, v in state.params['model'].items()
  }, outputs


def test_gradient_equals_that_of_the_mean_loss():
  batch = tiny.make_batch()
  moved, (output,) = _moved(_builder(_entry()), {'mono': batch})
  expected = _expected_gradient(batch)
  assert float(output.loss) == pytest.approx(expected['loss'], rel=1e-5)
  norm = np.sqrt(expected['bias'] ** 2 + (expected['w'] ** 2).sum())
  assert float(output.grad_norm) == pytest.approx(norm, rel=1e-5)
  for name in ('w', 'bias'):  # the first step of Adam with eps = 1
    g = expected[name]
    np.testing.assert_allclose(
      moved[name], -0.1 * g / (np.abs(g) + 1), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize('k', [2, 4])
def test_accumulation_equals_one_batch(k):
  """Rows have different weights, so a mean of micro-batch means would differ."""
  batches = {'mono': tiny.make_batch()}
  full_batch, (a,) = _moved(_builder(_entry()), batches)
  parts, (b,) = _moved(
    _builder(_entry(), gradient_accumulation_steps=k), batches
  )
  for name, value in full_batch.items():
    np.testing.assert_allclose(parts[name], value, rtol=1e-6, atol=1e-7)
  np.testing.assert_allclose(b.loss, a.loss, rtol=1e-6)
  np.testing.assert_allclose(b.grad_norm, a.grad_norm, rtol=1e-6)
  assert float(b.tokens) == float(a.tokens)
  np.testing.assert_allclose(b.metrics['regression/rows'].total, [4, 4])


@pytest.mark.parametrize('bad_step', [0, 1])
def test_non_finite_step_changes_only_the_step_count(bad_step):
  builder = _builder(_entry(poison=bad_step), ema_decay=0.5)
  batches = {'mono': tiny.make_batch()}
  before, _ = _run(builder, batches, steps=bad_step, ema=True)
  after, outputs = _run(builder, batches, steps=bad_step + 1, ema=True)
  assert [bool(o.finite) for o in outputs] == [True] * bad_step + [False]
  assert int(after.step) == bad_step + 1
  tiny.assert_trees_equal(after.replace(step=before.step), before)


def test_training_continues_after_a_non_finite_step():
  builder = _builder(_entry(poison=0))
  batches = {'mono': tiny.make_batch()}
  skipped, _ = _moved(builder, batches, steps=2)
  once, _ = _moved(_builder(_entry()), batches)
  np.testing.assert_array_equal(skipped['w'], once['w'])


def test_learning_rate_counts_skipped_steps():
  """The second step uses the rate of step 2, although step 1 was skipped."""
  rate = schedules.Piecewise(values=(0.1, 0.2), boundaries=(1,))
  batches = {'mono': tiny.make_batch()}
  skipped, _ = _moved(
    _builder(_entry(poison=0), optimizer=optimizers.SGD(learning_rate=rate)),
    batches,
    steps=2,
  )
  once, _ = _moved(
    _builder(_entry(), optimizer=optimizers.SGD(learning_rate=0.2)), batches
  )
  np.testing.assert_array_equal(skipped['w'], once['w'])


@pytest.mark.parametrize('rate', [1e-3, 1e25])
def test_non_finite_parameters_are_reported(rate):
  """The gradient is finite, but the parameters become 10^25."""
  builder = _builder(_entry(), optimizer=optimizers.AdamW(learning_rate=rate))
  _, outputs = _run(builder, {'mono': tiny.make_batch()})
  assert bool(outputs[0].finite)
  assert bool(jnp.isfinite(outputs[0].param_norm)) == (rate < 1)
  assert float(outputs[0].param_norm) > 0


@pytest.mark.parametrize('platform', ['cpu', 'gpu'])
@pytest.mark.parametrize('condition', [True, False])
def test_select_update_on_each_platform(monkeypatch, platform, condition):
  monkeypatch.setattr(jax, 'default_backend', lambda: platform)
  state = {'a': jnp.arange(3.0), 'n': jnp.int32(4)}

  def update(state):
    return {'a': state['a'] / (state['n'] - 4), 'n': state['n'] + 1}

  got = jax.jit(lambda c: train_step.select_update(c, update, state))(condition)
  want = update(state) if condition else state
  tiny.assert_trees_equal(got, want)


def test_update_on_cpus_is_in_place():
  """No memory is allocated for copies of the moments."""
  size = 1 << 20
  state = tiny.regression_state(optimizers.AdamW(learning_rate=0.1))
  optimizer = optimizers.AdamW(learning_rate=0.1)
  params = {'table': jnp.ones([size])}
  state = state.replace(
    params=params, opt_state=optimizer.transform.init(params)
  )

  def run(state, grads):
    return _builder(_entry(), optimizer=optimizer).apply_gradients(
      state, grads, state.objective_state, jnp.isfinite(grads['table'][0])
    )

  compiled = jax.jit(run, donate_argnums=0).lower(state, params).compile()
  assert compiled.memory_analysis().temp_size_in_bytes < 4 * size


def _frozen(*names):
  """Returns the optimizer and the step builder with frozen parameters."""
  optimizer = optimizers.AdamW(learning_rate=0.01, frozen=names)
  return optimizer, train_step.TrainStepBuilder(
    tiny.make_model(), tiny.make_mixture(), optimizer, tiny.SPEC, seed=0
  )


@pytest.mark.slow
def test_gradients_of_frozen_parameters_are_not_computed():
  """They also do not contribute to the gradient norm."""
  batches = {'mono': tiny.make_batch()}
  (full_state, all_of_it), (optimizer, builder) = _frozen(), _frozen('layers')
  factory = tiny.make_factory(optimizer=optimizer, use_ema=False)
  state = factory.create(jax.random.key(0))

  def norm_and_gradients(state, batches):
    norm = builder.build((0,))(state, batches)[1].grad_norm
    return norm, builder.compute_gradients((0,), state, batches)[0]

  norm, grads = jax.jit(norm_and_gradients)(state, batches)
  for leaf in jax.tree.leaves(grads['model']['layers']):
    assert not np.any(leaf)
  frozen_params = {
    k: v
    for k, v in param_tree.flatten_params(grads).items()
    if 'layers' not in k
  }
  total = np.sqrt(
    sum(float((leaf**2).sum()) for leaf in frozen_params.values())
  )
  assert total > 0
  np.testing.assert_allclose(norm, total, rtol=1e-5)
  complete = state.replace(opt_state=full_state.transform.init(state.params))
  flops = [
    jax.jit(step_builder.build((0,)))
    .lower(of, batches)
    .cost_analysis()['flops']
    for step_builder, of in ((all_of_it, complete), (builder, state))
  ]
  assert flops[1] < 0.9 * flops[0]


def test_ema_equals_a_value_computed_by_hand():
  """ema_1 = 0.9 p_0 + 0.1 p_1; ema_2 = 0.9 ema_1 + 0.1 p_2."""
  builder = _builder(_entry(), ema_decay=0.9)
  batches = {'mono': tiny.make_batch()}
  values = [
    np.asarray(
      _run(builder, batches, steps=n, ema=True)[0].params['model']['w'],
      np.float64,
    )
    for n in range(3)
  ]
  state, _ = _run(builder, batches, steps=2, ema=True)
  expected_average = 0.9 * (0.9 * values[0] + 0.1 * values[1]) + 0.1 * values[2]
  np.testing.assert_allclose(
    state.ema['model']['w'], expected_average, rtol=1e-5
  )


def test_ema_is_optional():
  state, _ = _run(_builder(_entry()), {'mono': tiny.make_batch()})
  assert state.ema == ()


def test_losses_of_entries_are_summed_by_weight():
  first, second = tiny.make_batch(seed=0), tiny.make_batch(seed=1)
  builder = _builder(
    _entry('mono'), _entry('other', weight=0.25, name='second')
  )
  moved, (output,) = _moved(
    builder, {'mono': first, 'other': second}, active=(0, 1)
  )
  a, b = _expected_gradient(first), _expected_gradient(second, weight=0.25)
  assert float(output.loss) == pytest.approx(
    a['loss'] + 0.25 * b['loss'], rel=1e-5
  )
  g = a['w'] + b['w']
  np.testing.assert_allclose(
    moved['w'], -0.1 * g / (np.abs(g) + 1), rtol=1e-4, atol=1e-6
  )


def test_sampled_entries_have_weight_one():
  """Weights are sampling rates, and the loss is not scaled."""
  batches = {'mono': tiny.make_batch()}
  builder = _builder(
    _entry('mono', weight=3.0),
    _entry('other', weight=1.0, name='second'),
    combine=objective_mixture.Combine.SAMPLE,
  )
  moved, (output,) = _moved(builder, batches, active=(0,))
  alone, (expected,) = _moved(_builder(_entry('mono')), batches)
  np.testing.assert_array_equal(moved['w'], alone['w'])
  assert float(output.loss) == float(expected.loss)


def test_metrics_are_computed_per_language():
  _, (output,) = _run(_builder(_entry()), {'mono': tiny.make_batch()})
  assert set(output.metrics) == {'regression/loss', 'regression/rows'}
  np.testing.assert_array_equal(output.metrics['regression/rows'].total, [4, 4])


def test_metrics_of_equal_objectives_are_prefixed_by_dataset():
  builder = _builder(_entry('mono'), _entry('other'))
  _, (output,) = _run(
    builder,
    {'mono': tiny.make_batch(), 'other': tiny.make_batch(seed=1)},
    active=(0, 1),
  )
  assert set(output.metrics) == {
    f'{s}_regression/{m}' for s in ('mono', 'other') for m in ('loss', 'rows')
  }


def test_token_count_includes_pairs_and_excludes_padding():
  batch = tiny.make_batch(rows=4, length=12)  # two rows of 12, two of 8
  assert float(train_step.count_tokens(batch)) == 40
  pairs = batch | {f'paired_{k}': v for k, v in batch.items()}
  assert float(train_step.count_tokens(pairs)) == 80


def test_randomness_depends_only_on_seed_and_step():
  entry = objective_mixture.WeightedObjective(
    dataset='mono', objective=_RandomLoss()
  )
  batches = {'mono': tiny.make_batch()}

  def losses(seed, steps):
    _, outputs = _run(_builder(entry, seed=seed), batches, steps=steps)
    return [float(o.loss) for o in outputs]

  assert losses(1, 3) == losses(1, 3)
  assert len(set(losses(1, 3) + losses(2, 3))) == 6


class _RandomLoss(tiny.Regression):
  """Objective with a random loss."""

  def __call__(self, model, params, batch, context):
    out = super().__call__(model, params, batch, context)
    factor = jax.random.uniform(context.rng)
    return out._replace(loss=out.loss._replace(total=out.loss.total * factor))


@pytest.mark.slow
def test_encoder_trains_under_strict_rank_promotion():
  """The loss of masked language modeling decreases."""
  assert jax.config.jax_numpy_rank_promotion == 'raise'
  optimizer = optimizers.AdamW(learning_rate=0.01)
  mixture = tiny.make_mixture(
    objective_mixture.WeightedObjective(
      dataset='mono', objective=masked_lm.MaskedLM(mask_ratio=0.5)
    )
  )
  factory = tiny.make_factory(optimizer=optimizer, mixture=mixture)
  builder = train_step.TrainStepBuilder(
    model=tiny.make_model(dropout_rate=0.1),
    mixture=mixture,
    optimizer=optimizer,
    vocabulary=tiny.SPEC,
    seed=0,
    gradient_accumulation_steps=2,
    ema_decay=0.99,
  )
  step = jax.jit(builder.build((0,)), donate_argnums=0)
  state, losses = factory.create(jax.random.key(0)), []
  for _ in range(12):
    state, output = step(state, {'mono': tiny.make_batch()})
    losses.append(float(output.loss))
  assert losses[0] == pytest.approx(np.log(tiny.SPEC.size), abs=0.3)
  assert losses[-1] < losses[0] - 0.3
  assert int(state.step) == 12
  assert output.metrics['mlm/loss'].total.shape == (2,)
  assert np.all(output.metrics['mlm/loss'].weight > 0)
  assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state.ema))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Invalid(tiny.Regression):
  """Returns another value that is computed from the valid output."""

  convert: Callable

  def __call__(self, model, params, batch, context):
    return self.convert(super().__call__(model, params, batch, context))


@pytest.mark.parametrize('steps', [1, 2])
@pytest.mark.parametrize(
  'convert, mentions',
  [
    (lambda out: out.loss.total, ('shape []', 'ObjectiveOutput')),
    (lambda out: None, ('None', 'ObjectiveOutput')),
    (lambda out: tuple(out), ('(WeightedMean(total', 'ObjectiveOutput')),
    (
      lambda out: out._replace(loss=out.loss.total),
      ('shape []', 'WeightedMean'),
    ),
    (
      lambda out: out._replace(
        loss=objective_base.WeightedMean(jnp.ones(3), jnp.ones(3))
      ),
      ('shape [3]', 'loss.total'),
    ),
    (
      lambda out: out._replace(loss=out.loss._replace(weight=jnp.ones([8]))),
      ('shape [8]', 'loss.weight'),
    ),
    (
      lambda out: out._replace(
        loss=out.loss._replace(total=out.loss.total.astype(jnp.int32))
      ),
      ('int32', 'loss.total'),
    ),
    (lambda out: out._replace(metrics=None), ('None', 'metrics')),
    (
      lambda out: out._replace(metrics={'m': out.loss.total}),
      ("'m'", 'WeightedMean'),
    ),
    (
      lambda out: out._replace(
        metrics={'m': out.loss._replace(total=jnp.ones([2, 2]))}
      ),
      ("'m'", 'shape [2, 2]'),
    ),
    (
      lambda out: (out.loss.total, {'loss': out.loss}),
      (
        '(<float32 array of shape []>',
        "{'loss': WeightedMean(total=<float32 array of shape []>",
      ),
    ),
  ],
)
def test_invalid_output_of_an_objective_is_reported(convert, mentions, steps):
  entry = objective_mixture.WeightedObjective(
    dataset='mono', objective=_Invalid(convert=convert)
  )
  builder = _builder(entry, gradient_accumulation_steps=steps)
  with raises_error(errors.ConfigError, mentions=mentions) as caught:
    _run(builder, {'mono': tiny.make_batch()})
  assert_mentions(caught.value.where, 'train_step_test.py', '__call__')
  assert 'Tracer' not in str(caught.value)


def test_objective_without_call_is_reported():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _Misspelled(objective_base.Objective):
    name: str = 'misspelled'

    def call(self, model, params, batch, context):
      raise AssertionError

  entry = objective_mixture.WeightedObjective(
    dataset='mono', objective=_Misspelled()
  )
  with raises_error(
    errors.ConfigError, where='_Misspelled', mentions='__call__'
  ):
    _run(_builder(entry), {'mono': tiny.make_batch()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Failing(tiny.Regression):
  """Raises an exception, computed from the arguments."""

  fail: Callable

  def __call__(self, model, params, batch, context):
    self.fail(params, batch)
    return super().__call__(model, params, batch, context)


@pytest.mark.parametrize(
  'fail, got, fix',
  [
    (
      lambda params, batch: float(jnp.sum(params['model']['w'])),
      'ConcretizationTypeError',
      ('`float`', 'jax.numpy'),
    ),
    (
      lambda params, batch: np.asarray(params['model']['w']),
      'TracerArrayConversionError',
      ('NumPy', 'jax.numpy'),
    ),
    (
      lambda params, batch: params['model'] if batch['tokens'] else None,
      "KeyError: 'tokens'",
      ("'token_ids'", '`batch`', "'model'", '`params`'),
    ),
    (lambda params, batch: batch + 1, 'TypeError', ()),
  ],
)
def test_exception_in_an_objective_is_reported_with_its_line(fail, got, fix):
  entry = objective_mixture.WeightedObjective(
    dataset='mono', objective=_Failing(fail=fail)
  )
  with raises_error(
    errors.ConfigError, mentions=('`_Failing.__call__`', got)
  ) as caught:
    _run(_builder(entry), {'mono': tiny.make_batch()})
  assert_mentions(
    caught.value.where, 'train_step_test.py', 'lambda params, batch'
  )
  assert_mentions(caught.value.fix, *fix)
  assert caught.value.__cause__ is not None


def test_missing_head_is_reported_with_existing_heads():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _OtherHead(tiny.Regression):
    def __call__(self, model, params, batch, context):
      return params['heads']['other']

  with raises_error(
    errors.ConfigError,
    got="KeyError: 'other'",
    mentions=("'mine'", "params['heads']"),
  ):
    objective_base.compute_output(
      _OtherHead(), None, {'model': {}, 'heads': {'mine': {}}}, {}, None
    )
