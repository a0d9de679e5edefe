"""Import and export of Sentence-Transformers folders."""

import json

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

import xlflax
from tests.errors import assert_mentions, raises_error
from tests.interop.huggingface import reference_tokenizers
from tests.interop.huggingface.huggingface_export_test import run_of
from tests.slow import mark_slow
from xlflax.evaluation import sentence_embedding
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  sentence_modules,
)
from xlflax.objectives.finetuning import sequence_classification
from xlflax.objectives.model_calls import Pooling
from xlflax.objectives.pretraining import masked_lm, sentence_alignment
from xlflax.training.checkpointing import objective_config
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_TEXTS = [
  'The cat',
  'ein Mensch, ein Wort',
  'the dog ate 1,234 apples in 2021!',
]


_V6 = 'sentence_transformers'


@pytest.fixture(scope='module')
def encoder(tmp_path_factory):
  """Folder with only the encoder and its tokenizer."""
  folder = tmp_path_factory.mktemp('encoder')
  tokenizer = reference_tokenizers.bert(folder, do_lower_case=False)
  tokenizer.save_pretrained(folder)
  torch.manual_seed(0)
  config = transformers.BertConfig(
    vocab_size=len(tokenizer),
    hidden_size=30,
    num_hidden_layers=1,
    num_attention_heads=5,
    intermediate_size=52,
    max_position_embeddings=40,
    initializer_range=0.2,
  )
  transformers.BertModel(config).save_pretrained(folder)
  return folder


def _write(folder, encoder, modules, **files):
  """Writes a copy of the encoder with modules and their files."""
  folder.mkdir()
  for path in encoder.iterdir():
    (folder / path.name).write_bytes(path.read_bytes())
  listed = [
    {'idx': i, 'name': str(i), 'path': path, 'type': kind}
    for i, (path, kind) in enumerate(modules)
  ]
  (folder / 'modules.json').write_text(json.dumps(listed))
  for name, content in files.items():
    path = folder / name.replace('__', '/')
    path.parent.mkdir(exist_ok=True)
    path.with_suffix('.json').write_text(json.dumps(content))
  return folder


def _mean(folder, encoder):
  """Writes a folder with mean pooling in the format of version 2."""
  return _write(
    folder,
    encoder,
    [
      ('', 'sentence_transformers.models.Transformer'),
      ('1_Pooling', 'sentence_transformers.models.Pooling'),
    ],
    **{
      '1_Pooling__config': {
        'word_embedding_dimension': 30,
        'pooling_mode_cls_token': False,
        'pooling_mode_mean_tokens': True,
        'pooling_mode_max_tokens': False,
      },
      'sentence_bert_config': {'max_seq_length': 8, 'do_lower_case': False},
    },
  )


def _dense(folder, encoder):
  """Writes CLS pooling, a dense layer and normalization as version 6."""
  written_files = _write(
    folder,
    encoder,
    [
      ('', f'{_V6}.base.modules.transformer.Transformer'),
      ('1_Pooling', f'{_V6}.sentence_transformer.modules.pooling.Pooling'),
      ('2_Dense', f'{_V6}.base.modules.dense.Dense'),
      ('3_Normalize', f'{_V6}.base.modules.normalize.Normalize'),
    ],
    **{
      '1_Pooling__config': {
        'embedding_dimension': 30,
        'pooling_mode': 'cls',
        'include_prompt': True,
      },
      '2_Dense__config': {
        'in_features': 30,
        'out_features': 8,
        'bias': True,
        'activation_function': 'torch.nn.modules.activation.Tanh',
      },
      'config_sentence_transformers': {
        'default_prompt_name': None,
        'similarity_fn_name': 'cosine',
      },
    },
  )
  rng = np.random.default_rng(0)
  safetensors.numpy.save_file(
    {
      'linear.weight': rng.normal(size=(8, 30)).astype('float32'),
      'linear.bias': rng.normal(size=8).astype('float32'),
    },
    written_files / '2_Dense/model.safetensors',
  )
  return written_files


def _expected(folder, kind):
  """Computes the vectors with transformers and NumPy."""
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  model = transformers.AutoModel.from_pretrained(folder).eval()
  vectors = []
  for text in _TEXTS:
    encoded = tokenizer(
      text, truncation=True, max_length=8, return_tensors='pt'
    )
    if kind == 'dense':
      encoded = tokenizer(text, return_tensors='pt')
    with torch.no_grad():
      states = model(**encoded).last_hidden_state[0].numpy()
    vectors.append(states.mean(0) if kind == 'mean' else states[0])
  vectors = np.stack(vectors)
  if kind == 'mean':
    return vectors
  weights = safetensors.numpy.load_file(folder / '2_Dense/model.safetensors')
  vectors = np.tanh(
    vectors @ weights['linear.weight'].T + weights['linear.bias']
  )
  return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize('kind', mark_slow(['mean', 'dense'], slow=['mean']))
def test_round_trip_keeps_vectors_and_modules(encoder, tmp_path, kind):
  make = _mean if kind == 'mean' else _dense
  folder = make(tmp_path / 'st', encoder)
  run = xlflax.from_huggingface(folder, languages=['en'])
  want = _expected(folder, kind)
  np.testing.assert_allclose(run.encode(_TEXTS), want, atol=1e-5)
  assert run.encode(_TEXTS, pooling='mean').shape == (3, 30)

  assert xlflax.to_huggingface(run, tmp_path / 'back') == []
  first, heads = sentence_modules.read_sentence_modules(folder)
  second, other_heads = sentence_modules.read_sentence_modules(
    tmp_path / 'back'
  )
  assert first == second
  assert heads.keys() == other_heads.keys()
  for name, head in heads.items():
    np.testing.assert_array_equal(head['kernel'], other_heads[name]['kernel'])
  np.testing.assert_array_equal(_expected(tmp_path / 'back', kind), want)


@pytest.mark.parametrize('kind', ['mean', 'dense'])
def test_exported_vectors_equal_sentence_transformers(encoder, tmp_path, kind):
  library = pytest.importorskip('sentence_transformers')
  make = _mean if kind == 'mean' else _dense
  folder = make(tmp_path / 'st', encoder)
  theirs = library.SentenceTransformer(str(folder), device='cpu')
  run = xlflax.from_huggingface(folder, languages=['en'])
  np.testing.assert_allclose(
    run.encode(_TEXTS), theirs.encode(_TEXTS), atol=1e-5
  )
  xlflax.to_huggingface(run, tmp_path / 'back')
  back = library.SentenceTransformer(str(tmp_path / 'back'), device='cpu')
  np.testing.assert_allclose(
    back.encode(_TEXTS), theirs.encode(_TEXTS), atol=1e-6
  )
  theirs.save(str(tmp_path / 'saved'))  # The format of the installed version.
  imported = xlflax.from_huggingface(tmp_path / 'saved', languages=['en'])
  np.testing.assert_allclose(
    imported.encode(_TEXTS), theirs.encode(_TEXTS), atol=1e-5
  )


def test_unsupported_modules_are_listed(encoder, tmp_path):
  folder = _write(
    tmp_path / 'st',
    encoder,
    [
      ('', 'sentence_transformers.models.Transformer'),
      ('1_Pooling', 'sentence_transformers.models.Pooling'),
      ('2_CNN', 'sentence_transformers.models.CNN'),
    ],
    **{
      '1_Pooling__config': {
        'pooling_mode_max_tokens': True,
        'pooling_mode_mean_tokens': True,
        'include_prompt': False,
      },
      'config_sentence_transformers': {'prompts': {'query': 'ask: '}},
    },
  )
  with pytest.raises(errors.ConfigError) as caught:
    sentence_modules.read_sentence_modules(folder)
  message = str(caught.value)
  for part in ('module CNN', 'pooling mean and max', 'include_prompt is false'):
    assert part in message


def test_folders_without_modules_are_plain_encoders(encoder):
  assert sentence_modules.read_sentence_modules(encoder) is None
  assert sentence_modules.transformer_folder(encoder) == encoder


def test_legacy_folders_contain_the_encoder_in_a_subfolder(tmp_path):
  (tmp_path / 'modules.json').write_text(
    json.dumps(
      [
        {'idx': 1, 'path': '1_Pooling', 'type': 'x.Pooling'},
        {'idx': 0, 'path': '0_Transformer', 'type': 'x.Transformer'},
      ]
    )
  )
  folder = sentence_modules.transformer_folder(tmp_path)
  assert folder == tmp_path / '0_Transformer'
  (tmp_path / '1_Pooling').mkdir()
  (tmp_path / '1_Pooling/config.json').write_text(
    '{"pooling_mode_mean_tokens": true}'
  )
  encoding, heads = sentence_modules.read_sentence_modules(tmp_path)
  assert (encoding.pooling, heads) == (Pooling.MEAN_ALL, {})


@pytest.mark.parametrize('pooling', ['mean_all', 'first'])
def test_exported_sentence_encoder_computes_the_same_vectors(
  run_of, tmp_path, pooling
):
  directory, *_ = run_of(type_vocab_size=2, position_offset=0)
  checked = huggingface_export.check_export(directory, pooling=pooling)
  assert checked.options['architectures'] == ['BertModel']
  assert folder_writer.write_folder(checked, tmp_path / 'out') == []
  want = xlflax.load_run(directory).encode(_TEXTS, pooling=pooling)
  tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')
  model = transformers.AutoModel.from_pretrained(tmp_path / 'out').eval()
  encoded = tokenizer(
    _TEXTS, padding=True, truncation=True, return_tensors='pt'
  )
  with torch.no_grad():
    states = model(**encoded).last_hidden_state.numpy()
  mask = encoded['attention_mask'].numpy()[..., None]
  mean = (states * mask).sum(1) / mask.sum(1)
  pooled = {'mean_all': mean, 'first': states[:, 0]}[pooling]
  np.testing.assert_allclose(pooled, want, atol=1e-4)
  encoding, _ = sentence_modules.read_sentence_modules(tmp_path / 'out')
  assert encoding.pooling is Pooling(pooling) and encoding.max_length == 12


def test_legacy_name_of_the_settings_file_is_read(tmp_path):
  (tmp_path / 'modules.json').write_text(
    json.dumps(
      [
        {'idx': 0, 'path': '', 'type': 'x.Transformer'},
        {'idx': 1, 'path': '1_Pooling', 'type': 'x.Pooling'},
      ]
    )
  )
  (tmp_path / '1_Pooling').mkdir()
  (tmp_path / '1_Pooling/config.json').write_text(
    '{"pooling_mode_mean_tokens": true}'
  )
  old = tmp_path / 'sentence_xlm-roberta_config.json'
  old.write_text('{"max_seq_length": 9, "do_lower_case": false}')
  assert sentence_modules.read_sentence_modules(tmp_path)[0].max_length == 9
  old.write_text('{"max_seq_length": 9, "do_lower_case": true}')
  with raises_error(
    errors.ConfigError, where='modules.json', mentions='do_lower_case'
  ):
    sentence_modules.read_sentence_modules(tmp_path)


def test_export_keeps_the_sentence_embedding_of_the_run(run_of):
  directory, *_ = run_of(type_vocab_size=2, position_offset=0)
  embedding = sentence_embedding.SentenceEmbedding(
    pooling='mean_all', normalize=True, prompts={'query': 'query: '}
  )
  sentence_embedding.write_sentence_encoding(directory, embedding)
  assert (
    huggingface_export.check_export(directory, pooling='mean_all').sentence
    == embedding
  )
  other = huggingface_export.check_export(directory, pooling='first').sentence
  assert (other.pooling, other.prompts) == (Pooling.FIRST, embedding.prompts)
  assert not other.normalize


@pytest.mark.parametrize(
  ('objective', 'recorded', 'pooling', 'suggested'),
  [
    (masked_lm.MaskedLM(), None, 'first', 'mean_all'),
    (masked_lm.MaskedLM(), None, 'mean_all', None),
    (masked_lm.MaskedLM(), 'first', 'first', None),
    (masked_lm.MaskedLM(), 'first', 'mean_all', 'first'),
    (sentence_alignment.SentenceAlignment(), None, 'first', 'mean_all'),
    (
      sentence_alignment.SentenceAlignment(pooling='first'),
      None,
      'first',
      None,
    ),
    (
      sequence_classification.SequenceClassification(labels=('a', 'b')),
      None,
      'first',
      None,
    ),
    (None, None, 'first', None),  # Imported without a definition.
    (None, 'mean', 'mean_all', None),
  ],
)
def test_untrained_pooling_is_reported(
  run_of, caplog, objective, recorded, pooling, suggested
):
  directory, *_ = run_of(type_vocab_size=1, position_offset=2)
  if objective is not None:
    objective_config.write_objectives(directory, (objective,))
  if recorded is not None:
    sentence_embedding.write_sentence_encoding(
      directory, sentence_embedding.SentenceEmbedding(pooling=recorded)
    )
  huggingface_export.check_export(directory, pooling=pooling)
  messages = [
    message
    for message in caplog.messages
    if '--sentence_transformers' in message
  ]
  assert len(messages) == (suggested is not None)
  if suggested is not None:
    expected = sentence_embedding.SentenceEmbedding(pooling=recorded or 'mean')
    assert_mentions(
      messages[0], expected, f'--sentence_transformers={suggested}', pooling
    )


@pytest.mark.slow
def test_export_without_sentence_modules_adds_a_note(run_of, tmp_path):
  directory, *_ = run_of(type_vocab_size=1, position_offset=2)
  plain = folder_writer.write_folder(
    huggingface_export.check_export(directory), tmp_path / 'plain'
  )
  assert not any('--sentence_transformers' in note for note in plain)
  embedding = sentence_embedding.SentenceEmbedding(pooling='mean_all')
  sentence_embedding.write_sentence_encoding(directory, embedding)
  notes = folder_writer.write_folder(
    huggingface_export.check_export(directory), tmp_path / 'out'
  )
  assert any('--sentence_transformers' in note for note in notes)
  checked = huggingface_export.check_export(directory, task='states')
  assert not any(
    '--sentence_transformers' in note
    for note in folder_writer.write_folder(checked, tmp_path / 'states')
  )


def test_sentence_transformers_loads_exported_runs(run_of, tmp_path):
  library = pytest.importorskip('sentence_transformers')
  directory, *_ = run_of(type_vocab_size=1, position_offset=2)
  checked = huggingface_export.check_export(directory, pooling='mean_all')
  folder_writer.write_folder(checked, tmp_path / 'out')
  theirs = library.SentenceTransformer(str(tmp_path / 'out'), device='cpu')
  want = xlflax.load_run(directory).encode(_TEXTS, pooling='mean_all')
  np.testing.assert_allclose(theirs.encode(_TEXTS), want, atol=1e-4)


def test_unsupported_pooling_is_rejected(run_of):
  directory, *_ = run_of()
  with raises_error(
    errors.ConfigError, where='run', mentions='use_language_embeddings=False'
  ):
    huggingface_export.check_export(directory, pooling='mean')
  with raises_error(errors.ConfigError, mentions='--head'):
    huggingface_export.check_export(
      directory, task='masked_lm', pooling='mean_all'
    )


@pytest.mark.parametrize('embedding', [{'layers': (0,)}, {'pooling': 'mean'}])
def test_unsupported_sentence_embeddings_are_rejected(run_of, embedding):
  directory, *_ = run_of(type_vocab_size=1, position_offset=2)
  sentence_embedding.write_sentence_encoding(
    directory, sentence_embedding.SentenceEmbedding(**embedding)
  )
  with raises_error(errors.ConfigError, where='sentence.json'):
    huggingface_export.check_export(directory, task='states')
  if 'pooling' in embedding:  # The argument overrides the pooling of the run.
    assert huggingface_export.check_export(directory, pooling='first').sentence
