"""Tests of reading public datasets in their published formats."""

import json

import pytest

from tests.errors import raises_error
from xlflax.data.supervised import file_formats
from xlflax.tasks import public_data
from xlflax.utils import errors


@pytest.fixture
def write(tmp_path):
  def make(name, text):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return str(path)

  return make


_XNLI = """language gold_label sentence1_binary_parse sentence2_binary_parse
  sentence1_parse sentence2_parse sentence1 sentence2 promptID pairID genre
  label1 label2 label3 label4 label5 sentence1_tokenized sentence2_tokenized
  match""".split()


@pytest.mark.parametrize('end', ['\n', '\r\n'])
def test_xnli_equals_tfds(write, end):
  from tensorflow_datasets.text import xnli

  texts = [
    ('"Ja", sagte er.', 'Er sprach.', 'entailment'),
    ('Ein " und ein \'', '" allein', 'neutral'),
    ('Mot\u2028suite', 'x\u0085y', 'contradiction'),
  ]
  lines = ['\t'.join(_XNLI)]
  for language in ('de', 'sw'):
    for pair, (first, second, label) in enumerate(texts):
      fields = dict.fromkeys(_XNLI, '') | {
        'language': language,
        'gold_label': label,
        'sentence1': f'{language} {first}',
        'sentence2': second,
        'pairID': str(pair),
        'match': 'True',
      }
      lines.append('\t'.join(fields.values()))
  path = write('xnli.test.tsv', end.join(lines) + end)
  labeled_pairs = file_formats.read_files(
    'tsv',
    path,
    'sw',
    has_header=True,
    columns={
      'id': 'pairID',
      'language': 'language',
      'text': 'sentence1',
      'paired_text': 'sentence2',
      'label': 'gold_label',
    },
  ).examples
  theirs = list(xnli.Xnli._generate_examples(None, path))
  assert [(x.id, x.text, x.paired_text, x.label) for x in labeled_pairs] == [
    (key, row['premise']['sw'], row['hypothesis']['sw'], row['label'])
    for key, row in theirs
  ]
  assert len(labeled_pairs) == 3


def test_pawsx_equals_tfds(write):
  from tensorflow_datasets.datasets.paws_x_wiki import (
    paws_x_wiki_dataset_builder as builder,
  )

  path = write(
    'test_2k.tsv',
    'id\tsentence1\tsentence2\tlabel\n'
    '1\t"Er ""kam"" an , dann\tging er ."\tEr " ging .\t0\n'
    "2\t`` Ja '' , sagte er .\tNein .\t1\n"
    '3\tNS\tNS\tNS\n'
    '4\tÀ la fin\t"Fin , "\t1\n',
  )
  labeled_pairs = file_formats.read_files(
    'tsv',
    path,
    'de',
    has_header=True,
    quoting='csv',
    columns={
      'id': 'id',
      'text': 'sentence1',
      'paired_text': 'sentence2',
      'label': 'label',
    },
    labels={'0': '0', '1': '1', 'NS': None},
  ).examples
  theirs = builder.Builder._generate_examples(None, path)
  assert [
    (x.id, x.text, x.paired_text, int(x.label)) for x in labeled_pairs
  ] == [
    (key, row['sentence1'], row['sentence2'].strip(), row['label'])
    for key, row in theirs
  ]


@pytest.mark.parametrize('end', ['\n', '\r\n'])
def test_squad_and_mlqa_equal_tfds(write, end):
  from tensorflow_datasets.question_answering import qa_utils

  context = 'Größe:\n "5 cm" 𝒳 — 京都 ist\u00a0da.'
  questions = [
    {
      'id': 'a',
      'question': 'Wie "groß"?',
      'answers': [
        {'text': '5 cm', 'answer_start': context.index('5')},
        {'text': '"5 cm"', 'answer_start': context.index('"')},
      ],
    },
    {
      'id': 'b',
      'question': 'Wo?',
      'answers': [{'text': '京都', 'answer_start': context.index('京')}],
    },
  ]
  value = {
    'version': '1.1',
    'data': [
      {'title': 'T', 'paragraphs': [{'context': context, 'qas': questions}]}
    ],
  }
  text = json.dumps(value, ensure_ascii=False, indent=1)
  path = write('dev-context-de-question-de.json', text.replace('\n', end))
  read_questions = file_formats.read_files('squad', path, 'de').examples
  theirs = list(qa_utils.generate_squadlike_examples(path))
  assert [x.id for x in read_questions] == [key for key, _ in theirs]
  for ours, (_, row) in zip(read_questions, theirs, strict=True):
    assert (ours.question, ours.context) == (row['question'], row['context'])
    assert [x.text for x in ours.answers] == row['answers']['text']
    assert [x.start for x in ours.answers] == row['answers']['answer_start']


def test_belebele_is_read(write, tmp_path):
  # `datasets.load_dataset('facebook/belebele')` reads the same JSON lines.
  row = {
    'link': 'https://en.wikibooks.org/wiki/X',
    'question_number': 1,
    'flores_passage': 'Ein "Satz". Noch\u2028einer.',
    'question': 'Was?',
    'mc_answer1': 'A',
    'mc_answer2': '2',
    'mc_answer3': 'C "c"',
    'mc_answer4': 'D',
    'correct_answer_num': '3',
    'dialect': 'deu_Latn',
    'ds': '2023-05-03',
  }
  (tmp_path / 'in').mkdir()
  write('in/deu_Latn.jsonl', json.dumps(row) + '\r\n' + json.dumps(row))
  public_data.convert('belebele', str(tmp_path / 'in'), str(tmp_path / 'out'))
  choices = file_formats.read_files(
    'belebele', str(tmp_path / 'out/deu_Latn/test.jsonl'), 'de'
  ).examples
  assert len(choices) == 8 and choices[0].text == row['flores_passage']
  assert [x.label == 'right' for x in choices[:4]] == [
    False,
    False,
    True,
    False,
  ]
  assert choices[6].paired_text == 'Was? C "c"'


def test_flores_is_split_at_line_feeds_only(write):
  from xlflax.evaluation import text_sources

  paths = [
    write('fra_Latn.devtest', 'Un « mot\u00a0».\nLe\u2028soir \n'),
    write('eng_Latn.devtest', 'A "word".\nThe evening\n'),
  ]
  pairs = text_sources.ParallelFiles(files={'fr-en': tuple(paths)}).load(
    ('fr', 'en')
  )
  assert list(pairs.first) == ['Un « mot\u00a0».', 'Le\u2028soir']
  assert list(pairs.second) == ['A "word".', 'The evening']


def test_masakhaner_is_read(write):
  path = write(
    'test.txt', 'Kenya B-LOC\nna O\n1,5 B-DATE\nJumatatu I-DATE\n\nNi O\n. O\n'
  )
  sentences = file_formats.read_files('conll_iob2', path, 'sw').examples
  assert [x.words for x in sentences] == [
    ('Kenya', 'na', '1,5', 'Jumatatu'),
    ('Ni', '.'),
  ]
  assert sentences[0].tags == ('B-LOC', 'O', 'B-DATE', 'I-DATE')
  with raises_error(errors.CorpusError, where='empty.txt'):
    file_formats.read_files('conll_iob2', write('empty.txt', '\n'), 'sw')
