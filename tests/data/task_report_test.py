"""Tests of task tables and preprocessing examples."""

from xlflax.data import task_report
from xlflax.data.seqio_tasks import corpus_tasks


def test_list_registered_returns_tasks_and_mixtures(registry, toy_corpus):
  corpus_tasks.register_corpus(toy_corpus, prefix='s1')
  rows = {row['name']: row for row in task_report.list_registered()}
  assert rows['s1.mono.ru'] == {
    'name': 's1.mono.ru',
    'kind': 'task',
    'languages': ['ru'],
    'splits': ['train', 'validation'],
  }
  assert rows['s1.mono'] == {
    'name': 's1.mono',
    'kind': 'mixture of 3',
    'languages': ['de', 'en', 'ru'],
    'splits': ['train', 'validation'],
  }


def test_tasks_are_grouped_into_families():
  def row(name, kind, *languages, splits=('train',)):
    return {
      'name': name,
      'kind': kind,
      'languages': list(languages),
      'splits': list(splits),
    }

  rows = [
    row('opus.koran.de_en', 'task', 'de', 'en'),
    row('opus.law.de_en', 'task', 'de', 'en', splits=('train', 'test')),
    row('opus', 'mixture of 2', 'de', 'en'),
    row('corpus.mono.de', 'task', 'de'),
    row('corpus.mono', 'mixture of 1', 'de'),
    row('news.sw', 'task', 'sw'),
    row('alone', 'tagging', 'fi'),
    row('ecs.wiki.en_fr', 'mixture of 2', 'en', 'fr'),
    row('ecs.wiki.en_ru', 'mixture of 2', 'en', 'ru'),
  ]
  assert task_report.group_by_family(rows) == [
    {'family': name, 'kind': kind, 'tasks': tasks, 'languages': n, 'splits': s}
    for name, kind, tasks, n, s in [
      ('alone', 'tagging', 1, 1, ['train']),
      ('corpus.mono', 'task', 1, 1, ['train']),
      ('ecs.wiki', 'mixture', 2, 3, ['train']),
      ('news', 'task', 1, 1, ['train']),
      ('opus', 'task', 2, 2, ['train', 'test']),
    ]
  ]


def test_mixture_rates(registry, toy_corpus):
  corpus_tasks.register_corpus(toy_corpus, prefix='s2', alpha=1.0)
  rows = task_report.mixture_rates('s2.mono')
  assert [(row['examples'], row['rate'], row['share']) for row in rows] == [
    (60, '60', '16.7%'),
    (200, '200', '55.6%'),
    (100, '100', '27.8%'),
  ]


def test_describe_preprocessing_shows_ids_tokens_and_text(
  registry, toy_corpus, toy_sentences, toy_vocabulary
):
  corpus_tasks.register_corpus(toy_corpus, prefix='s3')
  lines = list(
    task_report.describe_preprocessing(
      's3.mono.en', toy_vocabulary, num_examples=1
    )
  )
  text = toy_sentences['en'][0]
  ids = toy_vocabulary.encode(text)
  assert lines[0] == 's3.mono.en: en, splits train, validation'
  output = '\n'.join(lines)
  assert f'{len(ids)} ids {" ".join(map(str, ids))}' in output
  assert f'tokens:  {" ".join(map(toy_vocabulary.piece, ids))}' in output
  assert f'decoded: {text!r}' in output


def test_long_values_are_shortened_in_tables():
  table = task_report.format_table(
    [{'name': 'x', 'languages': [f'l{i}' for i in range(12)], 'n': 1234}],
    ('name', 'languages', 'n'),
  )
  assert table.splitlines()[1].split('  ')[0] == 'x'
  assert 'l7 … (12)' in table
  assert '1,234' in table
