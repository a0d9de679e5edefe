"""Runs the commands of docs/add_language.md on a small corpus."""

import json
import shutil

import pytest

from tests.end_to_end import conftest
from xlflax import cli

_TASK = ('--tasks=pseudo_perplexity', '--max_examples=10')


def _run(*arguments):
  assert not cli.main([str(argument) for argument in arguments])


def _corpus_without(corpus, language, output):
  """Writes a copy of a corpus without the text in a language."""
  shutil.copytree(corpus, output)
  for file in output.rglob('*'):
    if file.is_file() and language in file.stem.split('-'):
      file.unlink()
  return output


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_adding_a_language_reports_forgetting(tmp_path):
  corpus = tmp_path / 'all'
  conftest.write_corpus(corpus)
  old_corpus = _corpus_without(corpus, 'ru', tmp_path / 'old')
  start, vocabulary = tmp_path / 'start', tmp_path / 'vocabulary'
  _run('vocab', f'--corpus={old_corpus}', f'--output={vocabulary}', '--size=60')
  _run(
    'train',
    *conftest.TINY_MLM,
    f'--corpus={old_corpus}',
    f'--vocabulary={vocabulary}',
    f'--model_dir={start}',
    '--gin.TRAIN_STEPS=6',
  )

  extended, cache = tmp_path / 'extended', tmp_path / 'cache'
  _run(
    *('vocab', f'--extend={start / "vocabulary"}', f'--corpus={corpus}'),
    *('--new_languages=ru', '--size=+60', f'--output={extended}'),
  )
  _run(
    *('cache', f'--corpus={corpus}', f'--vocabulary={extended}'),
    f'--output={cache}',
  )
  models = {'full': (), 'lora': ('--gin_file=adapters/lora.gin',)}
  for name, adapters in models.items():
    _run(
      'train',
      '--gin_file=pretrain/mlm.gin',
      *adapters,
      '--gin_file=recipes/add_language.gin',
      f'--gin.RUN={str(start)!r}',
      "--gin.NEW_LANGUAGES=('ru',)",
      '--gin.LENGTH=16',
      '--gin.BATCH_SIZE=8',
      '--gin.trainer.Trainer.log_metrics_every=3',
      *(
        ["--gin.optimizers.AdamW.trainable=('/adapters_', 'embeddings/token$')"]
        if adapters
        else []
      ),
      f'--corpus={corpus}',
      f'--vocabulary={extended}',
      f'--cache={cache}',
      f'--model_dir={tmp_path / name}',
      '--gin.TRAIN_STEPS=6',
    )
  merged = tmp_path / 'lora_merged'
  _run('convert', 'merge-adapters', tmp_path / 'lora', f'--output={merged}')
  models[merged.name] = ()
  for name in ('start', *models):
    _run(
      *('evaluate', f'--model_dir={tmp_path / name}', *_TASK),
      f'--corpus={corpus}',
    )
  report = tmp_path / 'report'
  _run(
    'report',
    *(f'{name}={tmp_path / name}' for name in ('start', *models)),
    '--new_languages=ru',
    f'--output={report}',
  )
  content = json.loads((report / 'forgetting.json').read_text())
  changes = content['changes']
  # The vocabularies differ, so perplexities of tokens are not compared.
  assert {change['metric'] for change in changes} == {'bits_per_byte'}
  for name in models:
    by_language = {
      change['language']: change
      for change in changes
      if change['model'] == name
    }
    assert [by_language[code]['is_new'] for code in ('de', 'en', 'ru')] == [
      False,
      False,
      True,
    ]
    # Most Russian characters are unknown to the vocabulary of the start model.
    assert by_language['ru']['before'] and by_language['ru']['after']
    assert by_language.pop('ru')['difference'] is None
    for change in by_language.values():
      assert change['low'] <= change['difference'] <= change['high']
  [note] = [note for note in content['notes'] if 'unknown tokens' in note]
  assert 'ru' in note and 'start' in note
  # A quarter of the sequences are from the old languages.
  metrics = [
    json.loads(line)['train']
    for line in (tmp_path / 'full' / 'metrics.jsonl').read_text().splitlines()
    if 'train' in json.loads(line)
  ]
  tokens = {
    code: sum(record.get(f'mlm/tokens/{code}', 0) for record in metrics)
    for code in ('de', 'en', 'ru')
  }
  fraction = (tokens['de'] + tokens['en']) / sum(tokens.values())
  assert fraction == pytest.approx(0.25, abs=0.08)
