"""Runs the commands of docs/huggingface.md as printed, on a small model.

The folder `models/xlm-roberta-base` is a small XLM-R model, and `corpus` is
synthetic text. Only the number of steps of the commands is reduced.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import transformers

from tests.end_to_end import conftest as corpora
from tests.interop.huggingface import reference_tokenizers

_ROOT = pathlib.Path(__file__).parents[2]
_DOCUMENT = _ROOT / 'docs' / 'huggingface.md'
_SMALLER = {'TRAIN_STEPS=10000': 'TRAIN_STEPS=2'}


def _commands() -> str:
  """The document's first block of commands, smaller.

  The other needs more packages; onnx_files_test.py runs it.
  """
  block, other = re.findall(
    r'^```\n(.*?)^```$', _DOCUMENT.read_text('utf-8'), re.M | re.S
  )
  assert '--onnx' in other
  for number, small in _SMALLER.items():
    assert block.count(number) == 1, number
    block = block.replace(number, small)
  return block


@pytest.fixture
def folder(tmp_path):
  published = tmp_path / 'models' / 'xlm-roberta-base'
  published.mkdir(parents=True)
  tokenizer = reference_tokenizers.xlmr(published)
  tokenizer.save_pretrained(published)
  config = transformers.XLMRobertaConfig(
    vocab_size=len(tokenizer),
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=40,
    max_position_embeddings=514,
    type_vocab_size=1,
  )
  transformers.XLMRobertaForMaskedLM(config).save_pretrained(published)
  corpora.write_corpus(tmp_path / 'corpus')
  return tmp_path


@pytest.mark.slow
def test_commands_run(folder):
  programs = pathlib.Path(sys.executable).parent
  result = subprocess.run(
    ['bash', '-euo', 'pipefail', '-c', _commands()],
    cwd=folder,
    env=os.environ
    | {
      'PATH': f'{programs}:{os.environ["PATH"]}',
      'PYTHONPATH': str(_ROOT),
      'JAX_PLATFORMS': 'cpu',
      'XLA_FLAGS': '',
    },
    text=True,
    capture_output=True,
    check=False,
  )
  assert not result.returncode, result.stdout[-2000:] + result.stderr[-4000:]
  back = transformers.AutoModelForMaskedLM.from_pretrained(
    folder / 'models/mine'
  )
  assert back.config.model_type == 'xlm-roberta'
