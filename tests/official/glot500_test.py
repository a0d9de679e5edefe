"""Compares top-10 retrieval and round-trip alignment with Glot500."""

import argparse
import sys
import types

import numpy as np
import pytest
import torch
import transformers

from tests.interop.huggingface import reference_tokenizers
from tests.official import laser_test, scorers
from xlflax.evaluation import tatoeba_pairs
from xlflax.evaluation.metrics import alignment_error_rate
from xlflax.evaluation.tasks import retrieval_task
from xlflax.interop.huggingface import huggingface_import
from xlflax.runs import loaded_run
from xlflax.similarity import word_links

pytestmark = pytest.mark.slow

_SIZES = {'hidden_size': 20, 'num_hidden_layers': 3, 'num_attention_heads': 5}


class _L2(laser_test._Index):
  """Exact L2 search, which equals inner product search for unit vectors."""


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Folder of a tiny XLM-R model."""
  folder = tmp_path_factory.mktemp('xlmr')
  tokenizer = reference_tokenizers.xlmr(folder)
  tokenizer.save_pretrained(folder)
  torch.manual_seed(0)
  config = transformers.XLMRobertaConfig(
    vocab_size=len(tokenizer),
    intermediate_size=40,
    max_position_embeddings=130,
    type_vocab_size=1,
    initializer_range=0.3,
    **_SIZES,
  )
  transformers.XLMRobertaForMaskedLM(config).save_pretrained(folder)
  return folder


def _sentences(draw):
  vocabulary_words = ' '.join(reference_tokenizers.LINES).split()
  return [
    ' '.join(draw.choice(vocabulary_words, draw.integers(3, 12)))
    for _ in range(60)
  ]


def test_top_1_and_top_10_accuracy_equal_glot500(folder, tmp_path, monkeypatch):
  faiss = types.ModuleType('faiss')
  faiss.IndexFlatL2, faiss.normalize_L2 = _L2, laser_test._normalize
  monkeypatch.setitem(sys.modules, 'faiss', faiss)
  program = scorers.load_program(
    'Glot500', 'evaluation', 'retrieval', 'evaluate_retrieval_bible.py'
  )
  draw = np.random.default_rng(0)
  data, output = tmp_path / 'bible', tmp_path / 'out'
  for path in (data / 'tokens', output):
    path.mkdir(parents=True)
  pairs = ('mal_Mlym', 'tat_Cyrl')
  for code in pairs:
    source = _sentences(draw)
    english = [
      ' '.join(draw.permutation(line.split())[: 1 + len(line) // 12])
      for line in source
    ]
    for side, lines in ((code, source), ('eng_Latn', english)):
      (data / f'bible.{code}-eng_Latn.{side}').write_text(
        '\n'.join(lines) + '\n'
      )
  program.run(
    argparse.Namespace(
      model_type='xlmr',
      model_name_or_path=str(folder),
      init_checkpoint=None,
      do_lower_case=False,
      data_dir=f'{data}/tokens',
      output_dir=str(output),
      log_file=str(output / 'log'),
      predict_langs=pairs,
      num_layers=3,
      specific_layer=1,
      embed_size=20,
      batch_size=16,
      max_seq_length=128,
      pool_type='mean',
      pool_skip_special_token=False,
      dist='cosine',
      no_cuda=True,
    )
  )
  text = (output / 'test_results.txt').read_text()
  ours = loaded_run.load_run(
    huggingface_import.convert_import(
      huggingface_import.check_import(folder), tmp_path / 'ours'
    )
  )
  task = retrieval_task.Retrieval(
    source=tatoeba_pairs.Tatoeba(directory=str(data), name='bible'),
    layer=2,
    pooling='mean_all',
    max_length=128,
    centering='none',
    pair_filter='none',
  )
  result = task.evaluate(ours.eval_model())
  assert not result.failures
  for code in pairs:
    section = text.split(f'language={code}\n')[1].split('====')[0]
    theirs = dict(line.split(' = ') for line in section.splitlines())
    for end, line in (('', 'Acc1'), ('_top10', 'Acc10')):
      accuracy = result.metrics[f'backward{end}/{code}-eng_Latn']
      assert accuracy == pytest.approx(float(theirs[line]), abs=1e-9)
      assert 0 < accuracy < 1


@pytest.mark.parametrize('seed', range(40))
def test_round_trip_alignment_equals_glot500(seed):
  folder = scorers.find_program('Glot500', 'evaluation', 'round-trip')
  program = scorers.load_program(
    'Glot500',
    'evaluation',
    'round-trip',
    'evaluate_roundtrip.py',
    extra_folders=(folder,),
  )
  evaluator = program.RoundTripEvaluator.__new__(program.RoundTripEvaluator)
  evaluator.max_branch_thresh = 5
  draw = np.random.default_rng(seed)
  sizes = draw.integers(1, 12, draw.integers(2, 5))
  links = []
  for rows, columns in zip(sizes, (*sizes[1:], sizes[0]), strict=True):
    if seed % 2:
      similarity = draw.normal(size=(rows, columns))
      alignment = (
        program.simalign.simalign.SentenceAligner.get_alignment_matrix(
          similarity
        )
      )
      links.append((alignment[0] * alignment[1]).astype(bool))
      ours = word_links.link_matrix(similarity, 'argmax')
      np.testing.assert_array_equal(links[-1], ours)
    else:  # A word can have several links.
      links.append(draw.random((rows, columns)) < 0.4)
  aligns = [
    {i: [(0, j) for j in np.flatnonzero(row)] for i, row in enumerate(link)}
    for link in links
  ]
  expected = evaluator.eval_first_roundtrip_sentences(
    [['w'] * size for size in sizes], aligns
  )
  score = alignment_error_rate.round_trip_words(links)
  assert (score.sum(), len(score)) == expected
