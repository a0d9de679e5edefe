"""Tests of warnings about user-defined optimizers whose updates are wrong."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
import optax.contrib
import pytest

from tests.errors import assert_mentions
from xlflax import training
from xlflax.training import param_tree
from xlflax.training.optimization import optimizer_checks, optimizers, schedules

_PARAMS = {
  'model': {
    'embeddings': {'table': jax.ShapeDtypeStruct((64, 16), jnp.float32)},
    'layers_0': {'kernel': jax.ShapeDtypeStruct((16, 32), jnp.float32)},
    'layers_1': {'kernel': jax.ShapeDtypeStruct((16, 32), jnp.float32)},
  },
  'bias': jax.ShapeDtypeStruct((), jnp.float32),
}
_LINEAR = schedules.Linear(peak_value=0.1, total_steps=8, warmup_steps=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _UserOptimizer(optimizers.Optimizer):
  """A user-defined optimizer, whose transformation a function creates."""

  create: Callable

  def make(self, rate):
    return self.create(rate)


def _ascend(rate):
  return optax.chain(optax.scale_by_adam(), optax.scale_by_schedule(rate))


def _ascend_matrices(rate):
  return optax.multi_transform(
    {'matrices': _ascend(rate), 'rest': optax.adamw(rate)},
    lambda tree: param_tree.map_named(
      lambda name, _: 'matrices' if 'kernel' in name else 'rest', tree
    ),
  )


@pytest.mark.parametrize(
  'create, rate, name',
  [
    (_ascend, _LINEAR, 'bias'),
    (optax.scale, 0.1, 'bias'),
    (_ascend_matrices, _LINEAR, 'model/layers_0/kernel'),
  ],
)
def test_gradient_ascent_causes_a_warning(create, rate, name, caplog):
  optimizer = _UserOptimizer(learning_rate=rate, create=create, clip_norm=1.0)
  optimizer_checks.warn_of_ascent(optimizer, _PARAMS)
  (record,) = caplog.records
  assert_mentions(
    record.getMessage(),
    '_UserOptimizer',
    name,
    'optax.scale_by_learning_rate(rate)',
  )


def _project(rate):
  """Descends and projects each parameter to the unit sphere."""
  sgd = optax.sgd(rate)

  def update(gradients, state, params):
    updates, state = sgd.update(gradients, state, params)
    moved = optax.apply_updates(params, updates)
    projected = jax.tree.map(lambda x: x / jnp.linalg.norm(x), moved)
    return jax.tree.map(jnp.subtract, projected, params), state

  return optax.GradientTransformation(sgd.init, update)


def _fail(rate):
  raise ValueError('unsupported')


@pytest.mark.parametrize(
  'create',
  [
    optax.sgd,
    optax.adamw,
    lambda rate: optax.adamw(rate, weight_decay=-10.0),
    optax.lion,
    optax.lamb,
    optax.lars,
    optax.adafactor,
    lambda rate: optax.MultiSteps(optax.sgd(rate), 4).gradient_transformation(),
    lambda rate: optax.chain(optax.centralize(), optax.sgd(rate)),
    lambda rate: optax.masked(optax.sgd(rate), {'bias': True}),
    lambda rate: optax.chain(optax.noisy_sgd(rate, eta=10.0)),
    lambda rate: optax.set_to_zero(),
    lambda rate: optax.contrib.muon(rate),
    lambda rate: optax.contrib.schedule_free_sgd(rate),
    lambda rate: optax.contrib.sam(optax.sgd(rate), optax.sgd(0.05)),
    lambda rate: optax.polyak_sgd(),
    _project,
    _fail,
  ],
)
def test_descending_optimizers_cause_no_warning(create, caplog):
  optimizer = _UserOptimizer(learning_rate=0.1, create=create)
  optimizer_checks.warn_of_ascent(optimizer, _PARAMS)
  assert not caplog.records


def _add_decay_last(rate, mask=None):
  return optax.chain(
    optax.scale_by_adam(),
    optax.scale_by_learning_rate(rate),
    optax.add_decayed_weights(0.01, mask=mask),
  )


def _select_kernels(tree):
  return param_tree.map_named(lambda name, _: 'kernel' in name, tree)


@pytest.mark.parametrize(
  'create, rate, name',
  [
    (_add_decay_last, 0.1, 'bias'),
    (_add_decay_last, _LINEAR, 'bias'),
    (
      lambda rate: _add_decay_last(rate, mask=_select_kernels),
      _LINEAR,
      'model/layers_0/kernel',
    ),
    (
      lambda rate: optax.chain(
        optax.sgd(rate), optax.add_decayed_weights(1e-5), optax.clip(1.0)
      ),
      0.1,
      'bias',
    ),
  ],
)
def test_decay_after_the_learning_rate_causes_a_warning(
  create, rate, name, caplog
):
  optimizer = _UserOptimizer(learning_rate=rate, create=create, clip_norm=1.0)
  optimizer_checks.warn_of_growth(optimizer, _PARAMS)
  (record,) = caplog.records
  assert_mentions(
    record.getMessage(),
    '_UserOptimizer',
    name,
    'optax.add_decayed_weights',
    'optax.scale_by_learning_rate',
  )


def _chain_with_decay(*transforms, mask=None):
  """Returns a function that adds weight decay before the learning rate."""
  return lambda rate: optax.chain(
    *transforms,
    optax.add_decayed_weights(0.01, mask=mask),
    optax.scale_by_learning_rate(rate),
  )


def _ascend_with_decay(rate):
  """Lacks the minus sign, which `warn_of_ascent` reports."""
  return optax.chain(
    optax.scale_by_adam(),
    optax.add_decayed_weights(0.01),
    optax.scale_by_schedule(rate),
  )


@pytest.mark.parametrize(
  'create',
  [
    optax.sgd,
    optax.adamw,
    lambda rate: optax.adamw(rate, mask=_select_kernels),
    lambda rate: optax.lion(rate, weight_decay=0.1),
    lambda rate: optax.lamb(rate, weight_decay=0.1),
    lambda rate: optax.lars(rate, weight_decay=0.1),
    lambda rate: optax.adafactor(rate, weight_decay_rate=0.1),
    _chain_with_decay(optax.scale_by_adam()),
    _chain_with_decay(optax.scale_by_adam(), mask=_select_kernels),
    _chain_with_decay(optax.trace(0.9, nesterov=True)),
    _chain_with_decay(optax.scale_by_lion()),
    _chain_with_decay(optax.clip_by_global_norm(1.0), optax.scale_by_adam()),
    _chain_with_decay(optax.adaptive_grad_clip(0.01), optax.scale_by_adam()),
    _chain_with_decay(optax.scale_by_adam(), optax.ema(0.9)),
    lambda rate: optax.chain(
      optax.add_decayed_weights(0.01), optax.adam(rate), optax.ema(0.9)
    ),
    lambda rate: optax.chain(
      optax.sgd(rate, momentum=0.9), optax.add_decayed_weights(-0.01)
    ),
    lambda rate: optax.chain(
      optax.adamw(rate), optax.keep_params_nonnegative()
    ),
    lambda rate: optax.MultiSteps(
      optax.adamw(rate), 4
    ).gradient_transformation(),
    lambda rate: optax.masked(optax.adamw(rate), {'bias': True}),
    lambda rate: optax.noisy_sgd(rate, eta=10.0),
    lambda rate: optax.set_to_zero(),
    lambda rate: optax.contrib.muon(rate, weight_decay=0.1),
    lambda rate: optax.contrib.schedule_free_adamw(rate, weight_decay=0.1),
    lambda rate: optax.contrib.schedule_free_sgd(rate),
    lambda rate: optax.contrib.sam(optax.adamw(rate), optax.sgd(0.05)),
    lambda rate: optax.polyak_sgd(),
    _ascend_with_decay,
    _project,
    _fail,
  ],
)
def test_decay_before_the_learning_rate_causes_no_warning(create, caplog):
  optimizer = _UserOptimizer(learning_rate=_LINEAR, create=create)
  optimizer_checks.warn_of_growth(optimizer, _PARAMS)
  assert not caplog.records


@pytest.mark.parametrize(
  'optimizer',
  [
    optimizers.AdamW(learning_rate=0.1),
    optimizers.StableAdamW(learning_rate=0.1),
    optimizers.Muon(learning_rate=0.1),
    optimizers.Adam(learning_rate=0.1),
    optimizers.SGD(learning_rate=0.1, momentum=0.9),
    optimizers.Adafactor(learning_rate=0.1, weight_decay=0.1),
  ],
)
def test_optimizers_of_xlflax_do_not_increase_parameters(optimizer):
  assert not optimizer_checks.find_growing_parameters(optimizer, _PARAMS)


@pytest.mark.parametrize(
  'normalize', [optax.scale_by_adam, optax.scale_by_rms, optax.scale_by_sign]
)
def test_weight_decay_before_normalization_causes_a_warning(normalize, caplog):
  optimizer = _UserOptimizer(
    learning_rate=0.1,
    create=lambda rate: optax.chain(
      optax.add_decayed_weights(0.1),
      normalize(),
      optax.scale_by_learning_rate(rate),
    ),
  )
  optimizer_checks.warn_of_normalized_decay(optimizer, _PARAMS)
  (record,) = caplog.records
  assert_mentions(record.getMessage(), '_UserOptimizer.make', 'AdamW')


@pytest.mark.parametrize(
  'create',
  [
    lambda rate: optax.adamw(rate, weight_decay=0.1),
    lambda rate: optax.lion(rate, weight_decay=0.1),
    lambda rate: optax.lamb(rate, weight_decay=0.1),
    lambda rate: optax.adafactor(rate, weight_decay_rate=0.1),
    lambda rate: optax.chain(optax.add_decayed_weights(0.1), optax.sgd(rate)),
    lambda rate: optax.noisy_sgd(rate, eta=10.0),
    optax.adam,
    _ascend_with_decay,
    _project,
    _fail,
  ],
)
def test_decoupled_weight_decay_causes_no_warning(create, caplog):
  optimizer = _UserOptimizer(learning_rate=_LINEAR, create=create)
  optimizer_checks.warn_of_normalized_decay(optimizer, _PARAMS)
  assert not caplog.records


@pytest.mark.parametrize('rate', [0.1, _LINEAR])
def test_ignored_learning_rate_causes_a_warning(rate, caplog):
  optimizer = _UserOptimizer(
    learning_rate=rate, create=lambda rate: optax.adam(1e-3)
  )
  optimizer_checks.warn_of_misused_rate(optimizer, _PARAMS)
  (record,) = caplog.records
  assert_mentions(record.getMessage(), '_UserOptimizer.make', '`rate`')


@pytest.mark.parametrize(
  ('rate', 'transform'),
  [
    (_LINEAR, optax.scale_by_schedule),
    (0.1, optax.scale),
    (0.1, optax.scale_by_learning_rate),
  ],
)
def test_learning_rate_that_is_applied_twice_causes_a_warning(
  rate, transform, caplog
):
  optimizer = _UserOptimizer(
    learning_rate=rate,
    create=lambda rate: optax.chain(optax.adamw(rate), transform(rate)),
  )
  optimizer_checks.warn_of_misused_rate(optimizer, _PARAMS)
  (record,) = caplog.records
  assert_mentions(record.getMessage(), '_UserOptimizer.make', 'optax.adamw')


@dataclasses.dataclass(frozen=True, kw_only=True)
class _WithoutRate(_UserOptimizer):
  """A user-defined optimizer without a learning rate."""

  learning_rate: float = 1.0


@pytest.mark.parametrize(
  'create',
  [
    optax.sgd,
    optax.adamw,
    optax.lion,
    optax.adafactor,
    lambda rate: optax.MultiSteps(optax.sgd(rate), 4).gradient_transformation(),
    lambda rate: optax.masked(optax.sgd(rate), {'bias': True}),
    lambda rate: optax.set_to_zero(),
    lambda rate: optax.contrib.muon(rate),
    lambda rate: optax.contrib.schedule_free_sgd(rate),
    lambda rate: optax.clip(rate),
    _project,
    _fail,
  ],
)
def test_used_learning_rate_causes_no_warning(create, caplog):
  optimizer = _UserOptimizer(learning_rate=0.1, create=create)
  optimizer_checks.warn_of_misused_rate(optimizer, _PARAMS)
  assert not caplog.records


def test_optimizer_with_a_default_learning_rate_may_ignore_it(caplog):
  optimizer = _WithoutRate(create=lambda rate: optax.adam(1e-3))
  optimizer_checks.warn_of_misused_rate(optimizer, _PARAMS)
  assert not caplog.records


_STACKED_PARAMS = {
  'model': {
    'embeddings': {
      'norm': {'scale': jax.ShapeDtypeStruct((16,), jnp.float32)},
      'token': jax.ShapeDtypeStruct((64, 16), jnp.float32),
    },
    'layers': {
      'attention_norm': {'scale': jax.ShapeDtypeStruct((4, 16), jnp.float32)},
      'mlp': {'kernel': jax.ShapeDtypeStruct((4, 16, 32), jnp.float32)},
      'query': {'bias': jax.ShapeDtypeStruct((4, 2, 8), jnp.float32)},
    },
  },
  'heads': {
    'layers': {
      'layer_0': {'kernel': jax.ShapeDtypeStruct((16, 2), jnp.float32)}
    }
  },
}
_STACKED_SCALE = 'model/layers/attention_norm/scale of shape [4, 16]'


def _is_matrix(tree):
  return jax.tree.map(lambda x: x.ndim > 1, tree)


def _label_matrices(make_matrix, make_vector):
  """Returns a function that selects transformations by dimensions."""
  return lambda rate: optax.multi_transform(
    {'matrix': make_matrix(rate), 'vector': make_vector(rate)},
    lambda tree: jax.tree.map(
      lambda is_matrix: 'matrix' if is_matrix else 'vector', _is_matrix(tree)
    ),
  )


@pytest.mark.parametrize(
  'create, mentions',
  [
    (
      lambda rate: optax.adamw(rate, mask=_is_matrix),
      ('weight decay', 'training.decay_mask()'),
    ),
    (
      _chain_with_decay(optax.scale_by_adam(), mask=_is_matrix),
      ('weight decay',),
    ),
    (
      lambda rate: optax.lion(rate, weight_decay=0.1, mask=_is_matrix),
      ('weight decay',),
    ),
    (_label_matrices(optax.adamw, optax.adam), ('weight decay',)),
    (_label_matrices(optax.sgd, optax.adam), ('matrix',)),
    (optax.contrib.muon, ('matrix',)),
  ],
)
@pytest.mark.parametrize('rate', [0.1, _LINEAR])
def test_vectors_of_stacked_layers_as_matrices_cause_a_warning(
  create, mentions, rate, caplog
):
  optimizer = _UserOptimizer(learning_rate=rate, create=create, clip_norm=1.0)
  optimizer_checks.warn_of_stacked_vectors(optimizer, _STACKED_PARAMS)
  (record,) = caplog.records
  assert_mentions(
    record.getMessage(),
    '_UserOptimizer',
    _STACKED_SCALE,
    'model/embeddings/norm/scale of shape [16]',
    *mentions,
  )


def test_vectors_without_an_unstacked_example_cause_a_warning(caplog):
  params = {'model': {'layers': _STACKED_PARAMS['model']['layers']}}
  optimizer = _UserOptimizer(
    learning_rate=0.1, create=lambda rate: optax.adamw(rate, mask=_is_matrix)
  )
  optimizer_checks.warn_of_stacked_vectors(optimizer, params)
  (record,) = caplog.records
  assert_mentions(record.getMessage(), _STACKED_SCALE)


def _is_unstacked_matrix(tree):
  """Selects matrices with an additional dimension in stacked layers."""
  return param_tree.map_named(
    lambda name, x: x.ndim > (2 if 'model/layers' in name else 1), tree
  )


def _select_layers(tree):
  return param_tree.map_named(lambda name, _: 'model/layers' in name, tree)


@pytest.mark.parametrize(
  'create',
  [
    optax.sgd,
    optax.adamw,
    lambda rate: optax.adamw(rate, mask=training.decay_mask()),
    lambda rate: optax.adamw(rate, mask=_select_kernels),
    # All parameters of the layers are decayed, and no others.
    lambda rate: optax.adamw(rate, mask=_select_layers),
    lambda rate: optax.adamw(rate, mask=_is_unstacked_matrix),
    lambda rate: optax.adamw(rate, weight_decay=0.0, mask=_is_matrix),
    lambda rate: optax.lion(rate, weight_decay=0.1),
    lambda rate: optax.lamb(rate, weight_decay=0.1),
    lambda rate: optax.lars(rate, weight_decay=0.1),
    lambda rate: optax.adafactor(rate, weight_decay_rate=0.1),
    lambda rate: optax.contrib.schedule_free_adamw(rate, weight_decay=0.1),
    lambda rate: optax.chain(optax.adamw(rate), optax.ema(0.9)),
    lambda rate: optimizers.Muon(
      learning_rate=rate, weight_decay=0.1, muon_params=('mlp/kernel$',)
    ).make(rate),
    _project,
    _fail,
  ],
)
def test_selection_of_matrices_by_name_causes_no_warning(create, caplog):
  optimizer = _UserOptimizer(learning_rate=0.1, create=create)
  optimizer_checks.warn_of_stacked_vectors(optimizer, _STACKED_PARAMS)
  assert not caplog.records


def test_selection_by_dimensions_without_stacked_layers_causes_no_warning(
  caplog,
):
  optimizer = _UserOptimizer(
    learning_rate=0.1, create=lambda rate: optax.adamw(rate, mask=_is_matrix)
  )
  optimizer_checks.warn_of_stacked_vectors(optimizer, _PARAMS)
  assert not caplog.records


@pytest.mark.parametrize(
  'optimizer',
  [
    optimizers.AdamW(learning_rate=0.1),
    optimizers.StableAdamW(learning_rate=0.1),
    optimizers.Muon(learning_rate=0.1),
    optimizers.Adam(learning_rate=0.1),
    optimizers.SGD(learning_rate=0.1, momentum=0.9),
    optimizers.Adafactor(learning_rate=0.1, weight_decay=0.1),
  ],
)
def test_optimizers_of_xlflax_treat_stacked_vectors_as_vectors(optimizer):
  for find in (
    optimizer_checks.find_decayed_stacked_vectors,
    optimizer_checks.find_stacked_vectors_with_other_state,
  ):
    assert not find(optimizer, _STACKED_PARAMS)


def _clip_between(rate):
  return optax.chain(
    optax.scale_by_adam(),
    optax.clip_by_global_norm(1.0),
    optax.scale_by_learning_rate(rate),
  )


def _clip_with_decay(rate):
  return optax.chain(
    optax.scale_by_adam(),
    optax.add_decayed_weights(0.01),
    optax.clip_by_global_norm(0.5),
    optax.scale_by_learning_rate(rate),
  )


@pytest.mark.parametrize(
  'create',
  [
    _clip_between,
    _clip_with_decay,
    lambda rate: optax.chain(
      optax.scale_by_lion(),
      optax.clip_by_global_norm(1.0),
      optax.scale_by_learning_rate(rate),
    ),
  ],
)
@pytest.mark.parametrize('rate', [1e-3, _LINEAR])
def test_clipped_updates_of_adam_cause_a_warning(create, rate, caplog):
  optimizer = _UserOptimizer(learning_rate=rate, create=create)
  optimizer_checks.warn_of_clipped_updates(optimizer, _STACKED_PARAMS)
  (record,) = caplog.records
  assert_mentions(
    record.getMessage(),
    '_UserOptimizer.make',
    'optax.clip_by_global_norm',
    'clip_norm',
  )


@pytest.mark.parametrize(
  'create',
  [
    lambda rate: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate)),
    lambda rate: optax.chain(
      optax.clip_by_global_norm(1.0), optax.sgd(rate, momentum=0.9)
    ),
    lambda rate: optax.chain(
      optax.trace(0.9),
      optax.clip_by_global_norm(1.0),
      optax.scale_by_learning_rate(rate),
    ),
    # A limit on the size of single steps.
    lambda rate: optax.chain(
      optax.scale_by_adam(),
      optax.clip_by_global_norm(1000.0),
      optax.scale_by_learning_rate(rate),
    ),
    lambda rate: optax.chain(
      optax.scale_by_adam(),
      optax.clip_by_block_rms(1.0),
      optax.scale_by_learning_rate(rate),
    ),
    optax.adam,
    optax.adamw,
    optax.lion,
    optax.sign_sgd,
    optax.lamb,
    optax.lars,
    optax.novograd,
    optax.adafactor,
    optax.contrib.muon,
    optax.contrib.ademamix,
    optax.contrib.adopt,
    optax.contrib.dadapt_adamw,
    optax.contrib.prodigy,
    optax.contrib.momo_adam,
    optax.contrib.schedule_free_adamw,
    lambda rate: optax.contrib.dog(learning_rate=rate),
    lambda rate: optax.contrib.dowg(learning_rate=rate),
    lambda rate: optax.chain(
      optax.normalize_by_update_norm(), optax.scale_by_learning_rate(rate)
    ),
    lambda rate: optax.set_to_zero(),
    _project,
    _fail,
  ],
)
def test_other_updates_cause_no_warning_of_clipping(create, caplog):
  optimizer = _UserOptimizer(learning_rate=0.1, create=create)
  optimizer_checks.warn_of_clipped_updates(optimizer, _PARAMS)
  assert not caplog.records


def _decay_selected(is_decayed):
  """Returns a function that creates AdamW with a mask for weight decay."""
  return lambda rate: optax.adamw(
    rate,
    weight_decay=0.1,
    mask=lambda tree: param_tree.map_named(
      lambda name, _: is_decayed(name), tree
    ),
  )


@pytest.mark.parametrize(
  ('create', 'num_warnings'),
  [
    (_decay_selected(lambda name: name.endswith(('scale', 'bias'))), 1),
    (_decay_selected(lambda name: not name.endswith(('scale', 'bias'))), 0),
    (_decay_selected(lambda name: True), 0),
    (_decay_selected(lambda name: False), 0),
    (optax.adam, 0),
  ],
)
def test_weight_decay_of_only_vectors_causes_a_warning(
  create, num_warnings, caplog
):
  optimizer = _UserOptimizer(learning_rate=0.1, create=create)
  optimizer_checks.warn_of_inverted_decay(optimizer, _STACKED_PARAMS)
  assert len(caplog.records) == num_warnings
  if num_warnings:
    assert_mentions(caplog.text, '_UserOptimizer.make', 'training.decay_mask()')


@dataclasses.dataclass(frozen=True, kw_only=True)
class _WithDecay(_UserOptimizer):
  """A user-defined optimizer with a field for the weight decay."""

  weight_decay: float = 0.01

  def make(self, rate):
    return self.create(rate, self.weight_decay)


@pytest.mark.parametrize(
  ('create', 'num_warnings'),
  [
    (optax.adamw, 1),
    (lambda rate, decay: optax.adam(rate), 1),
    (lambda rate, decay: optax.adamw(rate, weight_decay=decay), 0),
    (lambda rate, decay: optax.adafactor(rate, weight_decay_rate=decay), 0),
    (
      lambda rate, decay: optax.chain(
        optax.add_decayed_weights(decay), optax.adam(rate)
      ),
      0,
    ),
  ],
)
def test_weight_decay_without_effect_causes_a_warning(
  create, num_warnings, caplog
):
  optimizer = _WithDecay(learning_rate=0.1, create=create)
  optimizer_checks.warn_of_ignored_decay(optimizer, _STACKED_PARAMS)
  assert len(caplog.records) == num_warnings
  optimizer = dataclasses.replace(optimizer, weight_decay=0.0)
  optimizer_checks.warn_of_ignored_decay(optimizer, _STACKED_PARAMS)
  assert len(caplog.records) == num_warnings
