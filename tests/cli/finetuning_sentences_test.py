"""Tests of fine-tuning on sentences by the commands, with a few steps each."""

import json

import numpy as np
import pytest

import xlflax
from xlflax import cli

pytest_plugins = ['tests.evaluation.fixtures']


@pytest.fixture(scope='module')
def pretrained(make_run, tmp_path_factory):
  return make_run(tmp_path_factory.mktemp('runs') / 'base', [0])


def _train(directory, family, pretrained, files, *arguments):
  return cli.main(
    [
      'train',
      f'--gin_file=finetune/{family}.gin',
      f'--model_dir={directory}',
      f"--gin.INIT_FROM='{pretrained}'",
      f'--gin.TRAIN_FILES={files!r}',
      '--gin.BATCH_SIZE=8',
      '--gin.LENGTH=32',
      '--gin.LEARNING_RATE=1e-2',
      '--gin.trainer.Trainer.log_metrics_every=2',
      *arguments,
    ]
  )


def _evaluate(directory, family, files, *arguments):
  assert (
    cli.main(
      [
        'evaluate',
        f'--gin_file=evaluate/{family}.gin',
        f'--model_dir={directory}',
        f'--gin.TEST_FILES={files!r}',
        *arguments,
      ]
    )
    == 0
  )
  (result,) = directory.glob('eval/*/*/*.json')
  return json.loads(result.read_text()), result.with_suffix('')


@pytest.mark.slow
def test_pair_classification_is_trained_and_evaluated(
  pretrained, sentences, tmp_path
):
  lines = {
    language: '\n'.join(
      f'{a}\t{b}\t{("same", "other")[i % 2]}'
      for i, (a, b) in enumerate(
        zip(
          sentences(language, 24),
          reversed(sentences(language, 24)),
          strict=True,
        )
      )
    )
    + '\n'
    for language in ('en', 'de')
  }
  files = {language: str(tmp_path / f'{language}.tsv') for language in lines}
  for language, text in lines.items():
    (tmp_path / f'{language}.tsv').write_text(text)
  run = tmp_path / 'run'
  assert (
    _train(
      run, 'classification', pretrained, {'en': files['en']}, '--gin.EPOCHS=2'
    )
    == 0
  )
  (recorded,) = json.loads((run / 'objectives.json').read_text())['objectives']
  assert recorded['fields']['labels'] == ['other', 'same']
  predictions = [
    json.loads(line)
    for line in (run / 'metrics.jsonl').read_text().splitlines()
  ]
  train = [row['train'] for row in predictions if 'train' in row]
  assert predictions[-1]['step'] == 6  # 24 examples, batch size 8, 2 epochs
  assert 0 <= train[-1]['sequence_classification/accuracy/en'] <= 1
  result, folder = _evaluate(run, 'classification', files)
  assert set(result['metrics']) == {
    f'{name}/{part}'
    for name in ('accuracy', 'macro_f1', 'majority')
    for part in ('en', 'de')
  } | {'accuracy/mean', 'macro_f1/mean'}
  predicted = (folder / 'de.tsv').read_text().splitlines()
  assert len(predicted) == 24 and set(predicted) <= {'same', 'other'}


@pytest.mark.slow
def test_question_answering_is_trained_and_evaluated(
  pretrained, sentences, tmp_path
):
  paragraphs = []
  for i, context in enumerate(sentences('en', 8)):
    answer = context.split()[1]
    paragraphs.append(
      {
        'context': f'{context} {context}',
        'qas': [
          {
            'id': f'q{i}',
            'question': 'what is it',
            'answers': [
              {'text': answer, 'answer_start': context.index(answer)}
            ],
          }
        ],
      }
    )
  path = tmp_path / 'en.json'
  path.write_text(json.dumps({'data': [{'paragraphs': paragraphs}]}))
  run = tmp_path / 'run'
  settings = ('--gin.DOC_STRIDE=6', '--gin.TRAIN_STEPS=3')
  assert (
    _train(run, 'question_answering', pretrained, {'en': str(path)}, *settings)
    == 0
  )
  result, folder = _evaluate(
    run, 'question_answering', {'en': str(path), 'en-de': str(path)}
  )
  assert result['inputs']['doc_stride'] == 6
  assert set(result['metrics']) == {
    f'{name}/{part}'
    for name in ('f1', 'exact_match')
    for part in ('en', 'en-de', 'mean')
  }
  answers = json.loads((folder / 'en.json').read_text())
  assert list(answers) == [f'q{i}' for i in range(8)]
  for paragraph in paragraphs:
    assert answers[paragraph['qas'][0]['id']] in paragraph['context']


def test_training_file_without_labels_is_an_error(
  pretrained, tmp_path, caplog, capsys
):
  (tmp_path / 'blind.tsv').write_text('a dog\tthe cat\n')
  files = {'en': str(tmp_path / 'blind.tsv')}
  assert _train(tmp_path / 'run', 'classification', pretrained, files) == 2
  assert 'no labels' in capsys.readouterr().err


@pytest.mark.slow
def test_retrieval_is_trained_and_evaluated(pretrained, sentences, tmp_path):
  """The run is evaluated with the sentence encoding of its training."""
  texts, translations = sentences('en', 16), sentences('de', 16)
  rows = list(zip(texts, translations, texts[1:] + texts[:1], strict=True))
  (tmp_path / 'train.tsv').write_text(
    ''.join('\t'.join(row) + '\n' for row in rows)
  )
  part = tmp_path / 'ranked' / 'en'
  part.mkdir(parents=True)
  for name, column in (('queries', 0), ('documents', 1)):
    (part / f'{name}.tsv').write_text(
      ''.join(f'{i}\t{row[column]}\n' for i, row in enumerate(rows))
    )
  (part / 'relevance.tsv').write_text(
    ''.join(f'{i} 0 {i} 1\n' for i in range(len(rows)))
  )
  run = tmp_path / 'run'
  prompts = {'query': 'the ', 'document': 'a '}
  assert (
    _train(
      run,
      'search',
      pretrained,
      {'en': str(tmp_path / 'train.tsv')},
      '--gin.GROUP=3',
      '--gin.BATCH_SIZE=24',
      '--gin.EPOCHS=10',
      '--gin.DIMENSIONS=(4, 16)',
      f'--gin.PROMPTS={prompts!r}',
      '--gin.EVALUATION=@during_training.Evaluation()',
      f"--gin.DEV_FOLDER='{tmp_path / 'ranked'}'",
    )
    == 0
  )
  predictions = [
    json.loads(line)
    for line in (run / 'metrics.jsonl').read_text().splitlines()
  ]
  losses = [
    row['train']['search/loss/en'] for row in predictions if 'train' in row
  ]
  assert losses[-1] < losses[0]
  loaded_run = xlflax.load_run(run)
  assert (
    loaded_run.sentence.normalize and loaded_run.sentence.prompts == prompts
  )
  vectors = loaded_run.encode(texts, languages='en', prompt_name='query')
  np.testing.assert_allclose((vectors**2).sum(1), 1, atol=1e-5)
  (result,) = run.glob('eval/ranking/*/*.json')
  result = json.loads(result.read_text())
  assert result['metrics']['recall@100/en'] == 1
  assert any("prompt query 'the '" in note for note in result['notes'])
