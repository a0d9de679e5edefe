"""Import of checkpoints: rejected folders, saved files and file formats."""

import json
import math
import os

import huggingface_hub
import numpy as np
import pytest
import safetensors.numpy

from tests import fake_bucket
from tests.errors import assert_mentions, raises_error
from tests.interop.huggingface import reference_models as reference
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.interop.huggingface.tokenizers import checkpoint_languages
from xlflax.models.variants import parameter_sharing
from xlflax.training.checkpointing import run_directory, saved_run
from xlflax.training.devices import partitioning
from xlflax.utils import errors


@pytest.fixture(scope='module')
def bert(tmp_path_factory):
  folder = tmp_path_factory.mktemp('bert')
  reference.save_model(reference.make_model('bert'), folder)
  return folder


@pytest.fixture
def folder(bert, tmp_path):
  """Copy of a BERT folder that a test may change."""
  target = tmp_path / 'hf'
  target.mkdir()
  for path in bert.iterdir():
    (target / path.name).write_bytes(path.read_bytes())
  return target


def _tensors(folder):
  return safetensors.numpy.load_file(folder / 'model.safetensors')


def _write(folder, tensors):
  safetensors.numpy.save_file(tensors, folder / 'model.safetensors')


def _edit(folder, **changes):
  path = folder / 'config.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _params(folder, output, **kwargs):
  run = saved_run.load_run(
    huggingface_import.convert_import(
      huggingface_import.check_import(folder, **kwargs), output
    )
  )
  return run, run.restore_params(0)


def test_exported_card_contains_only_known_metadata(folder, tmp_path):
  """The card contains neither a local parent path nor default languages."""
  _edit(folder, _name_or_path='/home/someone/parent')
  (folder / 'README.md').write_text('---\nlicense: my-own\n---\n')
  huggingface_import.convert_import(
    huggingface_import.check_import(folder), tmp_path / 'ours'
  )
  checked = huggingface_export.check_export(tmp_path / 'ours')
  folder_writer.write_folder(checked, tmp_path / 'back')
  card = huggingface_hub.ModelCard.load(tmp_path / 'back/README.md').data
  assert card.base_model is None and card.language is None
  assert (card.license, card.license_name) == ('other', 'my-own')
  assert card.library_name == 'transformers'
  assert card.pipeline_tag == 'fill-mask'


def test_card_names_the_hub_snapshot(folder, tmp_path):
  snapshot_dir = tmp_path / 'hub/models--org--name/snapshots/0123456789abcdef'
  snapshot_dir.parent.mkdir(parents=True)
  folder.rename(snapshot_dir)
  huggingface_import.convert_import(
    huggingface_import.check_import(snapshot_dir, languages=['de', 'zh_Hans']),
    tmp_path / 'ours',
  )
  record = run_directory.read_run_file(
    tmp_path / 'ours', huggingface_import.RECORD
  )
  assert record['hub'] == {
    'repository': 'org/name',
    'revision': '0123456789abcdef',
  }
  folder_writer.write_folder(
    huggingface_export.check_export(tmp_path / 'ours'), tmp_path / 'back'
  )
  card = huggingface_hub.ModelCard.load(tmp_path / 'back/README.md').data
  assert card.base_model == 'org/name'
  assert card.language == ['de', 'zh']
  assert card['language_bcp47'] == ['zh-Hans']


def test_different_pad_ids_are_rejected(tmp_path):
  folder = tmp_path / 'hf'
  reference.save_model(reference.make_model('roberta'), folder)
  path = folder / 'config.json'
  path.write_text(
    json.dumps(json.loads(path.read_text()) | {'pad_token_id': 0})
  )
  with raises_error(errors.VocabularyError, mentions='id'):
    huggingface_import.check_import(folder)


def test_unknown_architectures_are_rejected(folder):
  _edit(folder, model_type='mamba')
  with raises_error(errors.ConfigError, mentions=('mamba', 'xlm-roberta-xl')):
    huggingface_import.check_import(folder)


def test_unsupported_options_are_all_listed(folder):
  _edit(
    folder,
    is_decoder=True,
    position_embedding_type='relative_key',
    hidden_act='mish',
    layer_norm_eps='small',
    sliding_window=4,
    architectures=['BertForMultipleChoice'],
    pruned_heads={'0': [1]},
  )
  with pytest.raises(errors.ConfigError) as caught:
    huggingface_import.check_import(folder)
  message = str(caught.value)
  for part in (
    'is_decoder is True',
    "position_embedding_type is 'relative_k",
    "hidden_act is 'mish'",
    "layer_norm_eps is 'small'",
    'sliding_window = 4 is not an option',
    "architectures is ['BertForMultipleChoice']",
    'pruned_heads',
    'config.json',
  ):
    assert part in message, part


@pytest.mark.parametrize(
  ('option', 'value', 'field'),
  [
    ('layer_norm_eps', math.nan, 'layer_norm_epsilon'),
    ('layer_norm_eps', -1, 'layer_norm_epsilon'),
    ('layer_norm_eps', math.inf, 'layer_norm_epsilon'),
    ('layer_norm_eps', 10**40, 'layer_norm_epsilon'),
    ('hidden_dropout_prob', -0.5, 'dropout_rate'),
    ('num_hidden_layers', 10**9, 'num_layers'),
    ('hidden_size', 10**12, 'hidden_dim'),
    ('vocab_size', 10**40, 'vocab_size'),
  ],
)
def test_invalid_numbers_are_rejected(folder, option, value, field):
  _edit(folder, **{option: value})
  with raises_error(errors.ConfigError, where='config.json', mentions=field):
    huggingface_import.check_import(folder)


def test_numbers_that_overflow_a_float_are_rejected(folder):
  _edit(folder, layer_norm_eps=10**400)
  with raises_error(
    errors.ConfigError, where='config.json', mentions='layer_norm_eps'
  ):
    huggingface_import.check_import(folder)


def test_wrong_tensors_are_all_listed(folder):
  tensors = _tensors(folder)
  del tensors['bert.encoder.layer.1.output.dense.weight']
  del tensors['cls.predictions.transform.dense.bias']
  tensors['bert.encoder.layer.3.output.dense.bias'] = np.zeros(30, 'f')
  tensors['extra'] = np.zeros(2, 'f')
  name = 'bert.embeddings.position_embeddings.weight'
  tensors[name] = tensors[name][:-1]
  _write(folder, tensors)
  with pytest.raises(errors.CheckpointError) as caught:
    huggingface_import.check_import(folder)
  message = str(caught.value)
  for part in (
    'bert.encoder.layer.1.output.dense.weight [30, 52] is missing',
    'cls.predictions.transform.dense.bias [30] is missing',
    'bert.encoder.layer.3.output.dense.bias [30] is not part of',
    'extra [2] is not part of',
    f'{name} is [15, 30], not [16, 30]',
  ):
    assert part in message, part


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_non_finite_tensors_are_rejected(folder, tmp_path, value):
  """A value is reported once, even if two tied tensors contain it."""
  tensors = _tensors(folder)
  name = 'bert.embeddings.word_embeddings.weight'
  tensors[name][7, 3] = value
  if 'cls.predictions.decoder.weight' in tensors:
    tensors['cls.predictions.decoder.weight'] = tensors[name]
  _write(folder, tensors)
  with pytest.raises(errors.CheckpointError) as caught:
    huggingface_import.convert_import(
      huggingface_import.check_import(folder), tmp_path / 'ours'
    )
  message = str(caught.value)
  assert_mentions(message, 1, f'{tensors[name].size:,}', name)
  assert_mentions(message, 'model.safetensors')
  assert not (tmp_path / 'ours').exists()


def test_changed_tokenizer_files_are_not_exported(folder, tmp_path):
  """This includes files that the export only copies."""
  run, _ = _params(folder, tmp_path / 'ours')
  tokenizer_files = run.vocabulary.description['tokenizer_files']
  assert set(tokenizer_files) >= {'tokenizer_config.json'}
  path = tmp_path / 'ours' / 'vocabulary' / 'tokenizer_config.json'
  path.write_text('{}')
  with raises_error(errors.VocabularyError, where='tokenizer_config.json'):
    folder_writer.write_folder(
      huggingface_export.check_export(run.directory), tmp_path / 'back'
    )
  assert not (tmp_path / 'back').exists()


def test_unexpected_tensors_must_be_dropped_explicitly(folder):
  _write(folder, _tensors(folder) | {'extra.a': np.zeros(2, 'f')})
  with raises_error(
    errors.CheckpointError, where='hf', mentions=('extra.a', 2)
  ):
    huggingface_import.check_import(folder)
  checked = huggingface_import.check_import(folder, drop=['^extra'])
  assert checked.plan.skipped == {'extra.a': 'excluded by a pattern'}


def test_damaged_files_are_rejected(folder):
  path = folder / 'model.safetensors'
  path.write_bytes(path.read_bytes()[:-7])
  with raises_error(errors.CheckpointError, mentions='model.safetensors'):
    huggingface_import.check_import(folder)


@pytest.mark.parametrize('size', [60, 62])
def test_tokenizers_of_a_different_size_are_rejected(folder, size):
  reference.write_tokenizer(folder, size)
  with pytest.raises(errors.VocabularyError) as caught:
    huggingface_import.check_import(folder)
  assert_mentions(caught.value, size, 61)
  assert ('--unused_embeddings=keep' in str(caught.value)) == (size < 61)


def test_unused_embeddings_can_be_kept(folder):
  reference.write_tokenizer(folder, 60)
  checked = huggingface_import.check_import(folder, unused_rows='keep')
  assert checked.vocabulary.spec.size == 61
  assert 60 in checked.vocabulary.spec.special_ids


def test_invalid_json_is_rejected(folder):
  (folder / 'config.json').write_text('{"model_type": ')
  with raises_error(
    errors.ConfigError, where='config.json', mentions=(1, 16, 15)
  ):
    huggingface_import.check_import(folder)


def test_different_tied_tensors_are_rejected(folder):
  tensors = _tensors(folder)
  table = tensors['bert.embeddings.word_embeddings.weight']
  copies = {
    'cls.predictions.decoder.weight': table.copy(),
    'cls.predictions.decoder.bias': tensors['cls.predictions.bias'].copy(),
  }
  _write(folder, tensors | copies)
  checked = huggingface_import.check_import(folder)
  assert checked.plan.skipped == {
    'cls.predictions.decoder.weight': 'duplicate of bert.embeddings.word_embeddings.weight',
    'cls.predictions.decoder.bias': 'duplicate of cls.predictions.bias',
  }
  huggingface_import.convert_import(checked, folder.parent / 'ours')
  copies['cls.predictions.decoder.weight'][3, 4] += 1
  _write(folder, tensors | copies)
  with raises_error(
    errors.CheckpointError,
    where='hf',
    mentions=(
      'tie_word_embeddings',
      'cls.predictions.decoder.weight',
      'bert.embeddings.word_embeddings.weight',
    ),
  ):
    huggingface_import.convert_import(
      huggingface_import.check_import(folder), folder.parent / 'other'
    )
  assert not (folder.parent / 'other').exists()


def test_non_sinusoidal_positions_are_rejected(tmp_path):
  folder = tmp_path / 'hf'
  reference.save_model(reference.make_model('xlm_sinusoidal'), folder)
  tensors = _tensors(folder)
  tensors['transformer.position_embeddings.weight'][2, 3] += 0.1
  _write(folder, tensors)
  with raises_error(
    errors.CheckpointError,
    where='hf',
    mentions='transformer.position_embeddings.weight',
  ):
    huggingface_import.convert_import(
      huggingface_import.check_import(folder), tmp_path / 'ours'
    )


def test_legacy_names_and_buffers_are_read(folder, tmp_path):
  tensors = _tensors(folder)
  old = {
    name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace(
      'LayerNorm.bias', 'LayerNorm.beta'
    ): value
    for name, value in tensors.items()
  }
  assert old.keys() != tensors.keys()
  positions = 'bert.embeddings.position_ids'
  _, want = _params(folder, tmp_path / 'new')
  _write(folder, old | {positions: np.arange(16)[None]})
  assert huggingface_import.check_import(folder).plan.skipped == {
    positions: 'buffer that the model does not use'
  }
  _, got = _params(folder, tmp_path / 'old')
  np.testing.assert_array_equal(
    got['model']['layers']['mlp_norm']['scale'],
    want['model']['layers']['mlp_norm']['scale'],
  )


def test_pooler_of_a_masked_lm_is_kept(folder, tmp_path):
  rng = np.random.default_rng(0)
  more = {
    'bert.pooler.dense.weight': rng.normal(size=(30, 30)),
    'bert.pooler.dense.bias': rng.normal(size=30),
    'cls.seq_relationship.weight': rng.normal(size=(2, 30)),
    'cls.seq_relationship.bias': rng.normal(size=2),
  }
  more = {name: value.astype('f') for name, value in more.items()}
  tensors = _tensors(folder) | more
  _write(folder, tensors)
  run, params = _params(folder, tmp_path / 'ours')
  np.testing.assert_array_equal(
    params['heads']['pooler']['dense']['kernel'],
    more['bert.pooler.dense.weight'].T,
  )
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  back = _tensors(tmp_path / 'back')
  assert back.keys() == tensors.keys()
  assert all(np.array_equal(back[name], tensors[name]) for name in tensors)
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory, task='pretraining'),
    tmp_path / 'pretraining',
  )
  options = json.loads((tmp_path / 'pretraining/config.json').read_text())
  assert options['architectures'] == ['BertForPreTraining']


def test_padded_embeddings_are_removed_by_the_export(folder, tmp_path):
  run, params = _params(folder, tmp_path / 'ours', pad_vocab_size_multiple=8)
  table = params['model']['embeddings']['token']
  assert table.shape == (64, 30) and not np.any(table[61:])
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  first, back = _tensors(folder), _tensors(tmp_path / 'back')
  assert all(np.array_equal(back[name], first[name]) for name in first)


def test_round_trip_of_sharded_half_precision_files(folder, tmp_path):
  model = reference.make_model('bert').half()
  reference.save_model(model, tmp_path / 'half', max_shard_size='8KB')
  assert len(list((tmp_path / 'half').glob('*.safetensors'))) > 3
  run, params = _params(tmp_path / 'half', tmp_path / 'ours')
  assert params['model']['output_bias'].dtype == np.float32
  checked = huggingface_export.check_export(run.directory, dtype='float16')
  folder_writer.write_folder(checked, tmp_path / 'back', max_shard_bytes=8000)
  files = sorted((tmp_path / 'back').glob('*.safetensors'))
  assert len(files) > 3
  assert all(os.path.getsize(f) < 12000 for f in files)
  back = {}
  for file in files:
    back |= safetensors.numpy.load_file(file)
  index = json.loads(
    (tmp_path / 'back/model.safetensors.index.json').read_text()
  )
  assert index['weight_map'].keys() == back.keys()
  for name, value in model.state_dict().items():
    if 'decoder' not in name:
      np.testing.assert_array_equal(back[name], value.numpy())


def test_existing_output_is_rejected(folder, tmp_path):
  checked = huggingface_import.check_import(folder)
  (tmp_path / 'ours').mkdir()
  huggingface_import.convert_import(checked, tmp_path / 'ours')
  for output in (tmp_path / 'ours', folder / 'config.json'):
    with raises_error(errors.RunDirectoryError, mentions='--output'):
      huggingface_import.convert_import(checked, output)
  assert not list(tmp_path.glob('.*tmp'))


def test_unsupported_models_are_not_exported(folder, tmp_path):
  run, _ = _params(folder, tmp_path / 'ours')
  changed = run.model.clone(
    config=run.model.config.__class__(
      **(
        vars(run.model.config)
        | dict(
          sharing=parameter_sharing.SharingPlan(layers=1),
          num_languages=2,
          scale_embeddings=True,
        )
      )
    )
  )
  run_directory.write_model(run.directory, changed)
  with pytest.raises(errors.ConfigError) as caught:
    huggingface_export.check_export(run.directory)
  message = str(caught.value)
  assert_mentions(message, 'bert', 'sharing', 'scale_embeddings')


def test_missing_and_omitted_heads_are_listed(folder, tmp_path):
  checked = huggingface_import.check_import(folder)
  run, _ = _params(folder, tmp_path / 'ours')
  with pytest.raises(errors.CheckpointError) as caught:
    huggingface_export.check_export(run.directory, task='token_classification')
  message = str(caught.value)
  assert_mentions(message, 'heads/token_classification/output/kernel')
  with raises_error(
    errors.ConfigError, got='summarization', where='check_export.task'
  ):
    huggingface_export.check_export(run.directory, task='summarization')
  assert checked.description.task == 'masked_lm'
  only = huggingface_export.check_export(run.directory, task='states')
  assert only.left_out == {
    f'model/{name}': 'part of the masked-LM head, which BertModel does not have'
    for name in (
      'head_dense/bias',
      'head_dense/kernel',
      'head_norm/bias',
      'head_norm/scale',
      'output_bias',
    )
  }
  folder_writer.write_folder(only, tmp_path / 'states')
  assert 'embeddings.LayerNorm.bias' in _tensors(tmp_path / 'states')


def test_parameters_are_sharded_as_they_are_read(folder):
  partitioner = partitioning.Partitioner(fsdp=2)
  params = huggingface_import.load_import(
    huggingface_import.check_import(folder), partitioner
  )
  table = params['model']['embeddings']['token']
  assert len(table.sharding.device_set) == 8
  assert table.addressable_shards[0].data.size < table.size
  rows = _tensors(folder)['bert.embeddings.word_embeddings.weight']
  np.testing.assert_array_equal(table[: len(rows)], rows)


@pytest.mark.slow
def test_round_trip_through_a_bucket(folder, tmp_path):
  """The model directory is written to a bucket and read from it."""
  pytest.importorskip('gcsfs')
  bucket = fake_bucket.get_shared_bucket()
  bucket.objects.clear()
  bucket.writable, bucket.silent = True, False
  huggingface_import.convert_import(
    huggingface_import.check_import(folder), 'gs://bucket/bert'
  )
  run = saved_run.load_run('gs://bucket/bert')
  assert run.steps == [0] and run.is_finished()
  with pytest.raises(errors.RunDirectoryError, match='is there already'):
    huggingface_import.convert_import(
      huggingface_import.check_import(folder), 'gs://bucket/bert'
    )
  with pytest.raises(errors.RunDirectoryError, match='not be in a bucket'):
    folder_writer.write_folder(
      huggingface_export.check_export(run.directory), 'gs://bucket/back'
    )
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  expected, got = (
    _tensors(folder_name) for folder_name in (folder, tmp_path / 'back')
  )
  assert expected.keys() == got.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(got[name], value)


@pytest.mark.parametrize('languages', [None, ('sw', 'en')])
def test_round_trip_keeps_selected_languages(folder, tmp_path, languages):
  huggingface_import.convert_import(
    huggingface_import.check_import(folder, languages=languages),
    tmp_path / 'ours',
  )
  folder_writer.write_folder(
    huggingface_export.check_export(tmp_path / 'ours'), tmp_path / 'back'
  )
  config = json.loads((tmp_path / 'back/config.json').read_text())
  # Default languages are not written, as the folder had no such option.
  assert ('xlflax_languages' in config) == (languages is not None)
  back = huggingface_import.check_import(tmp_path / 'back')
  assert back.vocabulary.spec.languages == (
    languages or checkpoint_languages.DEFAULT
  )


@pytest.mark.parametrize(
  'value', ['en', [], [1], ['en', 'en'], [''], None, {'en': 0}]
)
def test_invalid_exported_languages_are_rejected(folder, value):
  _edit(folder, xlflax_languages=value)
  with raises_error(
    errors.ConfigError, got=repr(value), where='config.json, xlflax_languages'
  ):
    huggingface_import.check_import(folder)
  chosen = huggingface_import.check_import(folder, languages=('en',))
  assert chosen.vocabulary.spec.languages == ('en',)


def test_language_codes_match_unique_symbols():
  """The symbols of NLLB contain the script. Chinese has two symbols."""
  symbols = ('deu_Latn', 'eng_Latn', 'zho_Hans', 'zho_Hant')
  assert checkpoint_languages.choose_languages(symbols, ('en', 'de')) == (
    ('en', 'de'),
    ('eng_Latn', 'deu_Latn'),
  )
  assert checkpoint_languages.choose_languages(symbols, None) == (
    symbols,
    symbols,
  )
  with raises_error(errors.VocabularyError, got='zh', mentions='--languages'):
    checkpoint_languages.choose_languages(symbols, ('zh', 'en'))


def test_unknown_options_are_accepted_on_request(folder):
  _edit(folder, my_note='trained on Monday', other=1)
  with raises_error(
    errors.ConfigError, mentions=('my_note', 'other')
  ) as caught:
    huggingface_import.check_import(folder)
  assert '--ignore_config_keys=my_note,other' in caught.value.fix
  checked = huggingface_import.check_import(
    folder, ignored_options=('my_note', 'other')
  )
  assert checked.description.architecture.model_type == 'bert'


@pytest.mark.parametrize('name', ['hidden_size', 'is_decoder', 'no_such_key'])
def test_known_options_cannot_be_ignored(folder, name):
  with raises_error(errors.ConfigError, mentions=(name,)):
    huggingface_import.check_import(folder, ignored_options=(name,))


@pytest.mark.parametrize('name', ['model.safetensors', 'vocab.txt'])
def test_git_lfs_pointers_are_named(folder, name):
  (folder / name).write_text(
    'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123\n'
  )
  with raises_error(errors.CheckpointError, got=name):
    huggingface_import.check_import(folder)
