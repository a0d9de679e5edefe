"""Compares translations of exported models with those of xlflax."""

import json

import jax
import numpy as np
import pytest
import torch
import transformers

import xlflax
from tests.errors import raises_error
from tests.interop.huggingface import reference_tokenizers
from tests.interop.huggingface.huggingface_export_test import run_of
from xlflax import cli
from xlflax.data.supervised.featurizers import featurizer
from xlflax.interop.huggingface import folder_writer, huggingface_export
from xlflax.models import encoder_decoder, encoder_decoder_config
from xlflax.objectives.pretraining import seq2seq
from xlflax.training.checkpointing import objective_config
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_TEXTS = ['der Hund schläft', 'die kleine Katze', 'Milch']


@pytest.fixture
def translator(run_of):
  """Fixture that writes the run of a translation model."""

  def make(start, symbols):
    directory, *_ = run_of(
      encoder_decoder.EncoderDecoder(
        encoder_decoder_config.EncoderDecoderConfig(
          family='pre_ln',
          num_encoder_layers=1,
          num_decoder_layers=1,
          hidden_dim=16,
          pad_vocab_size_multiple=1,
          mlp_dim=32,
          num_heads=2,
          max_position_embeddings=24,
          initializer_range=0.5,
          layer_norm_epsilon=1e-5,
        )
      ),
      change=lambda params: jax.tree.map(lambda x: 4 * x, params),
    )
    objective = seq2seq.Translation(decoder_start=start, source_symbols=symbols)
    objective_config.write_objectives(directory, [objective])
    return directory

  return make


@pytest.mark.slow
@pytest.mark.parametrize(
  ('start', 'symbols'), [('language', 'language_suffix'), ('eos', 'bos')]
)
def test_exported_model_generates_the_same_translations(
  translator, tmp_path, start, symbols
):
  directory = translator(start, symbols)
  folder = tmp_path / 'out'
  notes = folder_writer.write_folder(
    huggingface_export.check_export(directory, direction=('de', 'en')), folder
  )
  assert not notes
  expected = xlflax.load_run(directory).translate(
    _TEXTS, source='de', target='en', beam_size=1
  )
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
  encoded = tokenizer(_TEXTS, padding=True, return_tensors='pt')
  encoded.pop('token_type_ids', None)
  with torch.no_grad():
    generated = model.generate(**encoded, num_beams=1, do_sample=False)
  texts = tokenizer.batch_decode(generated, skip_special_tokens=True)
  assert len(set(expected)) > 1
  for translation, other in zip(expected, texts, strict=True):
    assert other.startswith(translation)  # xlflax ends after 3n + 10 tokens


def test_missing_direction_is_reported(translator, tmp_path):
  directory = translator('language', 'bos')
  notes = folder_writer.write_folder(
    huggingface_export.check_export(directory), tmp_path / 'out'
  )
  assert [n for n in notes if '--target_lang' in n]
  config = json.loads((tmp_path / 'out/generation_config.json').read_text())
  assert 'decoder_start_token_id' not in config
  assert config['eos_token_id'] == 2


def test_direction_of_an_encoder_is_rejected(run_of):
  directory, *_ = run_of()
  with raises_error(errors.ConfigError, mentions=('direction', 'masked_lm')):
    huggingface_export.check_export(directory, direction=('de', 'en'))


@pytest.mark.parametrize(
  ('kind', 'symbols', 'noted'),
  [
    pytest.param('mbart', 'bos', True, marks=pytest.mark.slow),
    ('mbart', 'language_suffix', True),
    pytest.param('mt5', 'bos', False, marks=pytest.mark.slow),
  ],
)
def test_exported_tokenizer_uses_the_template_of_training(
  tmp_path, kind, symbols, noted
):
  """The template of mBART is `x </s> en_XX`; T5's `<pad>` is not compared."""
  folder, directory = tmp_path / kind, tmp_path / 'run'
  folder.mkdir()
  tokenizer = getattr(reference_tokenizers, kind)(folder)
  sizes = {
    'mbart': dict(
      d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16,
      decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=2,
      max_position_embeddings=24,
    ),
    'mt5': dict(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2),
  }  # fmt: skip
  model = {
    'mbart': transformers.MBartForConditionalGeneration,
    'mt5': transformers.MT5ForConditionalGeneration,
  }[kind]
  model(
    model.config_class(vocab_size=len(tokenizer), **sizes[kind])
  ).save_pretrained(folder)
  tokenizer.save_pretrained(folder)
  flags = ['from-hf', str(folder), f'--output={directory}']
  assert cli.main(['convert', *flags]) == 0
  objective = seq2seq.Translation(
    decoder_start='language' if kind == 'mbart' else 'bos',
    source_symbols=symbols,
  )
  objective_config.write_objectives(directory, [objective])
  codes = ('de', 'en') if kind == 'mbart' else None
  notes = folder_writer.write_folder(
    huggingface_export.check_export(directory, direction=codes),
    tmp_path / 'out',
  )
  assert any('source texts' in note for note in notes) == noted
  run = xlflax.load_run(directory)
  vocabulary = run.vocabulary
  row = featurizer.text_row(
    [np.asarray(vocabulary.encode('ein Hund'), np.int32)],
    (vocabulary.language_id('de') if kind == 'mbart' else 0,),
    vocabulary.spec,
  )
  rows = {name: jax.numpy.asarray(value)[None] for name, value in row.items()}
  rows = seq2seq.with_symbols(rows, objective.source_symbols, vocabulary.spec)
  ids = rows['token_ids'][0].tolist()
  exported_tokenizer = transformers.AutoTokenizer.from_pretrained(
    tmp_path / 'out'
  )
  assert exported_tokenizer('ein Hund').input_ids == [
    i for i in ids if i != vocabulary.spec.pad_id
  ]
