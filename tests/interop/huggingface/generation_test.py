"""Translation models generate in transformers as they do here."""

import json

import jax
import pytest
import torch
import transformers

import xlflax
from tests.interop.huggingface.exporting_test import run_of
from xlflax.foundation import errors
from xlflax.interop.huggingface import exporting, folder_writing
from xlflax.models import encoder_decoder, encoder_decoder_config
from xlflax.objectives.pretraining import seq2seq
from xlflax.training.checkpointing import saved_objectives

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_TEXTS = ['der Hund schläft', 'die kleine Katze', 'Milch']


@pytest.fixture
def translator(run_of):
  """The directory of a run that translates, with some symbols."""

  def make(start, symbols):
    directory, *_ = run_of(
      encoder_decoder.EncoderDecoder(
        encoder_decoder_config.EncoderDecoderConfig(
          family='pre_ln',
          num_encoder_layers=1,
          num_decoder_layers=1,
          hidden_dim=16,
          mlp_dim=32,
          num_heads=2,
          max_length=24,
          initializer_range=0.5,
          layer_norm_epsilon=1e-5,
        )
      ),
      change=lambda params: jax.tree.map(lambda x: 4 * x, params),
    )
    objective = seq2seq.Translation(decoder_start=start, source_symbols=symbols)
    saved_objectives.write(directory, [objective])
    return directory

  return make


@pytest.mark.parametrize(
  ('start', 'symbols'), [('language', 'language_last'), ('eos', 'bos')]
)
def test_transformers_generates_the_same(translator, tmp_path, start, symbols):
  directory = translator(start, symbols)
  folder = tmp_path / 'out'
  notes = folder_writing.convert(
    exporting.check(directory, direction=('de', 'en')), folder
  )
  assert not notes
  wanted = xlflax.open_run(directory).translate(
    _TEXTS, source='de', target='en', beam_size=1
  )
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
  made = tokenizer(_TEXTS, padding=True, return_tensors='pt')
  made.pop('token_type_ids', None)
  with torch.no_grad():
    found = model.generate(**made, num_beams=1, do_sample=False)
  texts = tokenizer.batch_decode(found, skip_special_tokens=True)
  assert len(set(wanted)) > 1
  for one, other in zip(wanted, texts, strict=True):
    assert other.startswith(one)  # xlflax ends after 3n + 10 tokens


def test_a_direction_that_is_not_given_is_said(translator, tmp_path):
  directory = translator('language', 'bos')
  notes = folder_writing.convert(exporting.check(directory), tmp_path / 'out')
  assert [n for n in notes if '--direction' in n]
  written = json.loads((tmp_path / 'out/generation_config.json').read_text())
  assert 'decoder_start_token_id' not in written
  assert written['eos_token_id'] == 2


def test_a_direction_of_an_encoder_is_refused(run_of):
  directory, *_ = run_of()
  with pytest.raises(errors.ConfigError, match='A direction is of translation'):
    exporting.check(directory, direction=('de', 'en'))
