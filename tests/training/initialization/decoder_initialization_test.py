"""Tests of initializing encoder-decoders from encoders."""

import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from tests.slow import mark_slow
from xlflax.models import (
  encoder,
  encoder_decoder,
  encoder_decoder_config,
  model_params,
)
from xlflax.models import encoder_config as model_config
from xlflax.training import param_tree, train_state
from xlflax.training.checkpointing import checkpoints
from xlflax.training.initialization import init_from as initialization
from xlflax.training.initialization import parameter_assignment
from xlflax.training.initialization.decoder_initialization import (
  InitDecoderFromEncoder,
  Layers,
)
from xlflax.training.initialization.parameter_assignment import Source
from xlflax.utils import errors

_SIZES = dict(
  hidden_dim=8,
  mlp_dim=16,
  num_heads=2,
  vocab_size=20,
  pad_vocab_size_multiple=1,
  max_position_embeddings=10,
)


def _params(model, seed):
  shapes = nn.meta.unbox(
    jax.eval_shape(lambda: model_params.init_params(model, jax.random.key(0)))
  )
  rng = np.random.default_rng(seed)
  return {
    'model': jax.tree.map(
      lambda s: jnp.asarray(rng.normal(size=s.shape), jnp.float32), shapes
    )
  }


def _state(params, step=0):
  return train_state.TrainState(
    step=jnp.int32(step),
    params=params,
    opt_state={},
    ema=(),
    objective_state={},
  )


def _encoder(**fields):
  return encoder.Encoder(
    model_config.EncoderConfig(**({'num_layers': 3} | _SIZES | fields))
  )


def _translator(**fields):
  return encoder_decoder.EncoderDecoder(
    encoder_decoder_config.EncoderDecoderConfig(
      **(
        dict(
          family='post_ln',
          num_encoder_layers=3,
          num_decoder_layers=2,
          mlm_head='transform',
        )
        | _SIZES
        | fields
      )
    )
  )


def _save(directory, model):
  params = _params(model, 1)
  saved = checkpoints.Checkpoints(directory)
  saved.save(_state(params, 7), {})
  saved.close()
  return str(directory), param_tree.flatten_params(params['model'])


@pytest.fixture(scope='module')
def veco(tmp_path_factory):
  return _save(tmp_path_factory.mktemp('veco'), _encoder(cross_attention=True))


@pytest.fixture(scope='module')
def unrolled(tmp_path_factory):
  return _save(
    tmp_path_factory.mktemp('unrolled'),
    _encoder(cross_attention=True, scan_layers=False),
  )


@pytest.fixture(scope='module')
def plain(tmp_path_factory):
  return _save(tmp_path_factory.mktemp('plain'), _encoder())


def _apply(inits, params):
  shardings = jax.tree.map(lambda x: x.sharding, params)
  factory = types.SimpleNamespace(
    shardings=types.SimpleNamespace(params=shardings)
  )
  state = initialization.initialize_from_runs(inits, _state(params), factory)
  return param_tree.flatten_params(state.params['model'])


def _start(run, params, **fields):
  return _apply(
    initialization.InitFromCheckpoint(
      model_dir=run[0], decoder=InitDecoderFromEncoder(**fields)
    ),
    params,
  )


def _layer(named, name, i):
  """Returns the slice of layer i of a parameter, stacked or not."""
  stacked = f'layers/{name}'
  return named[stacked][i] if stacked in named else named[f'layers_{i}/{name}']


def _check(got, source, layers, *, fresh=None):
  """Every parameter of `got` against the encoder's; `layers` of it in the
  decoder; `fresh`: what cross-attention keeps."""
  for name, value in got.items():
    side, _, suffix = name.partition('/')
    is_cross_attention = side == 'decoder' and 'cross_attention' in suffix
    if is_cross_attention and fresh is not None:
      want = fresh[name]
    elif '/layers/' in name:
      suffix = suffix.removeprefix('layers/')
      source_layers = layers if side == 'decoder' else range(3)
      want = jnp.stack([_layer(source, suffix, i) for i in source_layers])
    elif '/layers_' in name:
      layer_number, _, suffix = suffix.removeprefix('layers_').partition('/')
      want = _layer(
        source,
        suffix,
        (layers[int(layer_number)] if side == 'decoder' else int(layer_number)),
      )
    else:
      want = source[suffix]
    np.testing.assert_array_equal(value, want, err_msg=name)


@pytest.mark.parametrize(
  ('layers', 'source_layers'),
  [
    ('first', (0, 1)),
    # The default of the other tests.
    pytest.param('last', (1, 2), marks=pytest.mark.slow),
  ],
)
@pytest.mark.parametrize('tied', [False, True])
@pytest.mark.parametrize('scanned', [False, True])
@pytest.mark.parametrize(
  'run', mark_slow(['veco', 'unrolled'], slow=['unrolled'])
)
def test_all_parameters_are_initialized_from_the_encoder(
  run, request, layers, source_layers, tied, scanned
):
  """Covers tied and scanned models and the choice of layers."""
  run = request.getfixturevalue(run)
  params = _params(
    _translator(tie_decoder=tied, tied_layers=layers, scan_layers=scanned), 2
  )
  got = _start(run, params, layers=layers)
  _check(got, run[1], source_layers)
  if tied:  # Only the cross-attention is not tied.
    assert all('cross_attention' in n for n in got if n.startswith('decoder'))


@pytest.mark.parametrize('tied', ['first', 'last'])
def test_tied_decoder_is_initialized_from_its_tied_layers(tied):
  model = _translator(tie_decoder=True, tied_layers=tied)
  assert InitDecoderFromEncoder().resolve(model).layers.value == tied
  other = {'first': Layers.LAST, 'last': Layers.FIRST}[tied]
  with raises_error(
    errors.ConfigError,
    where='InitDecoderFromEncoder.layers',
    mentions='EncoderDecoderConfig.tied_layers',
  ):
    InitDecoderFromEncoder(layers=other).resolve(model)
  plain = _translator(tie_decoder=False, tied_layers=tied)
  assert InitDecoderFromEncoder().resolve(plain).layers is None


def test_decoder_of_equal_depth_uses_all_encoder_layers(veco):
  _check(
    _start(veco, _params(_translator(num_decoder_layers=3), 2)),
    veco[1],
    (0, 1, 2),
  )


def test_cross_attention_may_stay_random(plain):
  """The cross-attention keeps its random initialization."""
  params = _params(_translator(), 2)
  got = _start(plain, params, cross_attention='random')
  _check(
    got, plain[1], (1, 2), fresh=param_tree.flatten_params(params['model'])
  )


def test_missing_cross_attention_is_reported(plain):
  with pytest.raises(errors.CheckpointError) as raised:
    _start(plain, _params(_translator(), 2))
  text = str(raised.value)
  assert (
    'model/layers/cross_attention/key/kernel is not in the checkpoint' in text
  )
  assert "set InitDecoderFromEncoder.cross_attention = 'random'" in text


def test_unused_head_of_the_encoder_is_reported(veco):
  """The pretrained head must be used or listed as unused."""
  params = _params(_translator(mlm_head='tied'), 2)
  with raises_error(
    errors.CheckpointError,
    mentions=('model/head_dense/bias', 'model/head_dense/kernel'),
  ):
    _start(veco, params)
  got = _apply(
    initialization.InitFromCheckpoint(
      model_dir=veco[0], decoder=InitDecoderFromEncoder(), unused=('/head_',)
    ),
    params,
  )
  _check(got, veco[1], (1, 2))


def test_pretrained_cross_attention_may_be_replaced_by_a_random_one(veco):
  params = _params(_translator(), 2)
  got = _start(veco, params, cross_attention='random')
  _check(got, veco[1], (1, 2), fresh=param_tree.flatten_params(params['model']))


def test_encoder_decoder_requires_the_decoder_option(veco):
  with raises_error(
    errors.CheckpointError,
    where='7',
    mentions=(
      'InitFromCheckpoint.decoder',
      'model/decoder/embeddings/norm/bias',
    ),
  ):
    _apply(
      initialization.InitFromCheckpoint(model_dir=veco[0]),
      _params(_translator(), 2),
    )


def test_invalid_options_are_rejected():
  for settings in ({'layers': 'middle'}, {'cross_attention': 'some'}):
    with pytest.raises(errors.ConfigError):
      InitDecoderFromEncoder(**settings)


def test_all_shape_mismatches_are_listed(veco):
  params = _params(_translator(mlp_dim=24, num_encoder_layers=4), 2)
  with pytest.raises(errors.CheckpointError) as raised:
    _start(veco, params)
  text = str(raised.value)
  assert (
    'model/encoder/layers/mlp/wi/kernel is (4, 8, 24) here, (3, 8, 16)' in text
  )
  assert (
    'model/decoder/layers/mlp/wo/kernel is (2, 24, 8) here, (2, 16, 8)' in text
  )
  assert 'model/encoder/layers/attention_norm/bias is (4, 8) here' in text


def test_decoder_deeper_than_the_encoder_is_rejected(veco):
  with raises_error(
    errors.CheckpointError,
    where='7',
    mentions=(4, 8, 3, 'model/decoder/layers/attention/key/bias'),
  ):
    _start(veco, _params(_translator(num_decoder_layers=4), 2))


@pytest.mark.parametrize('scanned', [False, True])
def test_encoder_is_restored_between_scanned_and_unrolled_layers(
  veco, unrolled, scanned
):
  run = unrolled if scanned else veco
  params = _params(_encoder(cross_attention=True, scan_layers=scanned), 2)
  got = _apply(initialization.InitFromCheckpoint(model_dir=run[0]), params)
  other = (veco if scanned else unrolled)[1]
  assert got.keys() == other.keys()
  for name, value in got.items():
    parts = name.split('/')
    suffix = '/'.join(parts[1:])
    if parts[0] == 'layers':
      want = jnp.stack([_layer(run[1], suffix, i) for i in range(3)])
    elif parts[0].startswith('layers_'):
      want = _layer(run[1], suffix, int(parts[0].removeprefix('layers_')))
    else:
      want = run[1][name]
    np.testing.assert_array_equal(value, want)


def test_parameters_of_several_runs_are_combined(veco, plain):
  """The embeddings of the second run replace those of the first."""
  params = _params(_encoder(), 2)
  got = _apply(
    (
      initialization.InitFromCheckpoint(model_dir=plain[0]),
      initialization.InitFromCheckpoint(
        model_dir=veco[0], include=('embeddings/',)
      ),
    ),
    params,
  )
  for name, value in got.items():
    source = veco if name.startswith('embeddings/') else plain
    np.testing.assert_array_equal(value, source[1][name])


def test_uninitialized_parameters_of_several_runs_are_logged(veco, caplog):
  caplog.set_level('INFO')
  _apply(
    [
      initialization.InitFromCheckpoint(
        model_dir=veco[0], include=('layers/',)
      ),
      initialization.InitFromCheckpoint(model_dir=veco[0], include=('token',)),
    ],
    _params(_encoder(cross_attention=True), 2),
  )
  assert_mentions(caplog.text, 'model/embeddings/position')
  assert 'model/embeddings/token' not in caplog.text


@pytest.mark.parametrize(
  ('name', 'depth', 'want'),
  [
    ('layers/w', 2, Source(('layers/w',), rows=(1, 2))),
    ('layers/w', 3, Source(('layers/w',))),
    ('layers_1/w', 2, Source(('layers/w',), rows=2)),
    (
      'top/layers/v',
      2,
      Source(('top/layers_1/v', 'top/layers_2/v'), stacked=True),
    ),
    ('top/layers_0/v', 2, Source(('top/layers_1/v',))),
    ('layers/none', 2, None),
    ('head', None, Source(('head',))),
    ('tail', None, None),
    ('layers_5/w', 2, None),
  ],
)
def test_sources_of_parameters_are_found(name, depth, want):
  saved = {
    'layers/w': (3, 4),
    'head': (2,),
    **{f'top/layers_{i}/v': (5,) for i in range(3)},
  }
  choose = InitDecoderFromEncoder().select_layers
  assert parameter_assignment.find_source(name, depth, saved, choose) == want


def test_stack_depths_are_inferred():
  assert parameter_assignment.stack_depths(
    {
      'a/layers/w': (3, 4),
      'b/layers_0/w': (4,),
      'b/layers_1/w': (4,),
      'head': (2,),
    }
  ) == {'a/layers/w': 3, 'b/layers_0/w': 2, 'b/layers_1/w': 2}
