"""Tests of converting public datasets in their published formats."""

import hashlib
import json

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import cli
from xlflax.data.supervised import file_formats
from xlflax.data.supervised.sources import beir
from xlflax.tasks import public_converters, public_data
from xlflax.utils import errors


def _write(path, text):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text, encoding='utf-8')


def _lines(*values):
  return ''.join(json.dumps(value) + '\n' for value in values)


def test_sib200_is_converted(tmp_path, capsys):
  _write(
    tmp_path / 'in/swh_Latn/test.tsv',
    'index_id\tcategory\ttext\n7\tsports\tMpira ni mzuri.\n',
  )
  flags = [f'--input={tmp_path}/in', f'--output={tmp_path}/out']
  assert cli.main(['tasks', 'convert', 'sib200', *flags]) == 0
  assert_mentions(capsys.readouterr().out, 1, 'swh_Latn/test.tsv')
  (example,) = file_formats.read_files(
    'tsv',
    str(tmp_path / 'out/swh_Latn/test.tsv'),
    'sw',
    columns={'text': 0, 'label': 1},
  ).examples
  assert (example.text, example.label) == ('Mpira ni mzuri.', 'sports')


def test_sib200_is_unquoted_like_pandas(tmp_path):
  # The authors read their files with pandas.read_csv(path, sep='\t').
  text = (
    'index_id\tcategory\ttext\r\n'
    '1\tscience/technology\t"""We now have mice,"" he added."\r\n'
    '2\tsports\tA 12" disc, "whole".\r\n'
    '3\tsports\t"One ""and""\tanother"\r\n'
  )
  _write(tmp_path / 'in/eng_Latn/dev.tsv', text)
  public_data.convert('sib200', str(tmp_path / 'in'), str(tmp_path / 'out'))
  labeled_texts = file_formats.read_files(
    'tsv',
    str(tmp_path / 'out/eng_Latn/dev.tsv'),
    'en',
    columns={'text': 0, 'label': 1},
  ).examples
  assert [(item.text, item.label) for item in labeled_texts] == [
    ('"We now have mice," he added.', 'science/technology'),
    ('A 12" disc, "whole".', 'sports'),
    ('One "and" another', 'sports'),
  ]


def test_duplicate_file_names_are_rejected(tmp_path):
  """XCOPA's repository also contains machine translations of the test sets."""
  for folder in ('data', 'data-gmt'):
    _write(tmp_path / f'in/{folder}/zh/test.zh.jsonl', _lines({'idx': 0}))
  with raises_error(errors.CorpusError, where='in'):
    public_data.convert('xcopa', str(tmp_path / 'in'), str(tmp_path / 'out'))
  output_files = public_data.convert(
    'xcopa', str(tmp_path / 'in/data'), str(tmp_path / 'out')
  )
  assert output_files == ['zh/test.jsonl']


def test_massive_is_converted(tmp_path):
  rows = [
    {
      'partition': partition,
      'utt': 'wake me at nine am',
      'annot_utt': 'wake me at [time : nine am]',
      'intent': 'alarm_set',
    }
    for partition in ('train', 'dev')
  ]
  _write(tmp_path / 'in/1.1/data/sw-KE.jsonl', _lines(*rows))
  output_files = public_data.convert(
    'massive', str(tmp_path / 'in'), str(tmp_path / 'out')
  )
  assert sorted(output_files) == [
    'intents/sw-KE/train.tsv',
    'intents/sw-KE/validation.tsv',
    'slots/sw-KE/train.conll',
    'slots/sw-KE/validation.conll',
  ]
  (example,) = file_formats.read_files(
    'conll_iob2', str(tmp_path / 'out/slots/sw-KE/train.conll'), 'sw'
  ).examples
  assert example.words == ('wake', 'me', 'at', 'nine', 'am')
  assert example.tags == ('O', 'O', 'O', 'B-time', 'I-time')


def test_slot_lines_docstring_example():
  slots = public_converters.slot_lines(
    '[day : friday] and [time : nine am] now', 'en-US'
  )
  assert slots == [
    'friday\tB-day',
    'and\tO',
    'nine\tB-time',
    'am\tI-time',
    'now\tO',
  ]


@pytest.mark.parametrize(
  'locale, annotated, expected',
  [
    # Output of MASSIVE's create_hf_dataset.py and convert_to_bio.
    ('de-DE', '[a : x y] [a : z] w', 'x B-a/y I-a/z I-a/w O'),
    ('ja-JP', '[time : 午 前] に a', '午 B-time/前 I-time/に O/a O'),
    ('zh-CN', '[a : 北京] [a : 天] 气', '北 B-a/京 I-a/天 I-a/气 O'),
    # The official code does not close the slot at a bracket in a Latin word.
    ('zh-TW', '叫 [b : hue] 我', '叫 O/hue B-b/我 I-b'),
  ],
)
def test_slot_lines_match_the_official_code(locale, annotated, expected):
  slots = public_converters.slot_lines(annotated, locale)
  assert '/'.join(slots).replace('\t', ' ') == expected


def test_files_of_some_datasets_are_copied(tmp_path):
  for name in (
    'belebele/swh_Latn.jsonl',
    'xcopa/sw/test.sw.jsonl',
    'xstory_cloze/spring2016.val.sw.tsv.split_20_80_eval.tsv',
    'xwinograd/test/jp.jsonl',
  ):
    _write(tmp_path / name, '{}\n')
  for name, expected in (
    ('belebele', 'swh_Latn/test.jsonl'),
    ('xcopa', 'sw/test.jsonl'),
    ('xstory_cloze', 'sw/test.tsv'),
    ('xwinograd', 'ja/test.jsonl'),
  ):
    output_files = public_data.convert(
      name, str(tmp_path / name), str(tmp_path / 'out')
    )
    assert (
      output_files == [expected] and (tmp_path / 'out' / expected).is_file()
    )


def test_lareqa_documents_contain_all_languages(tmp_path):
  for language in ('en', 'sw'):
    paragraph = {
      'context': 'One two. Three four.',
      'sentence_breaks': [[0, 8], [9, 20]],
      'qas': [{'id': 'q', 'question': '?', 'answers': [{'answer_start': 9}]}],
    }
    _write(
      tmp_path / f'in/{language}.json',
      json.dumps({'data': [{'paragraphs': [paragraph]}]}),
    )
  public_data.convert('lareqa', str(tmp_path / 'in'), str(tmp_path / 'out'))
  held = beir.BeirDataset(directory=str(tmp_path / 'out')).load('all')
  right = {'en-0-1': 1.0, 'sw-0-1': 1.0}
  assert held.relevance == {'en-q': right, 'sw-q': right}
  assert held.queries['sw-q'].language == 'sw' and len(held.documents) == 4


def test_mewslix_is_converted(tmp_path):
  text = 'Title. A strike in Helsinki began. End.'
  article = {
    'context': {
      'language': 'fi',
      'text': text,
      'sentence_spans': [
        {'start': 0, 'end': 6},
        {'start': 7, 'end': 34},
        {'start': 35, 'end': 39},
      ],
    },
    'mentions': [
      {
        'example_id': name,
        'entity_id': entity,
        'mention_span': {'start': 19, 'end': 27, 'text': 'Helsinki'},
      }
      for name, entity in (('m1', 'Q1757'), ('m2', ''))
    ],
  }
  entities = [
    {
      'entity_id': entity,
      'title': 'A',
      'description': 'A  capital.\nOf Finland.',
      'description_language': 'sw',
      'sentence_spans': [],
    }
    for entity in ('Q1757', 'Q9')
  ]
  start = tmp_path / 'in'
  _write(start / 'candidate_set_entities.jsonl', _lines(*entities))
  _write(start / 'wikinews_mentions-test.jsonl', _lines(article))
  _write(start / 'wikinews_mentions/dev-fi.jsonl', _lines(article))
  output_files = public_data.convert(
    'mewslix', str(start), str(tmp_path / 'out')
  )
  assert len(output_files) == 6 and output_files[0] == 'dev/all/queries.jsonl'
  held = beir.BeirDataset(directory=str(tmp_path / 'out/test')).load('all')
  query = 'Helsinki: A strike in { Helsinki } began.'
  assert held.queries['m1'] == beir.Text(query, 'fi')
  assert held.documents['Q9'] == beir.Text('A capital. Of Finland.', 'sw')
  assert held.relevance == {'m1': {'Q1757': 1.0}}


def test_dataset_descriptions_are_complete():
  for name, data in public_data.list_data_sets().items():
    assert data.describe().startswith(name) and data.splits
    assert all(
      isinstance(getattr(data, field), str) and getattr(data, field)
      for field in ('kind', 'source', 'licence', 'languages', 'fetch', 'use')
    )
    assert all(len(value) == 64 for value in data.sha256.values())


def test_miracl_is_converted(tmp_path):
  start = tmp_path / 'in'
  _write(start / 'topics.miracl-v1.0-sw-dev.tsv', '1\tNani?\n')
  _write(start / 'qrels.miracl-v1.0-sw-dev.tsv', '1\tQ0\td1\t1\n')
  _write(
    start / 'miracl-corpus-v1.0-sw/docs-0.jsonl',
    _lines({'docid': 'd1', 'title': 'A', 'text': 'b'}),
  )
  public_data.convert('miracl', str(start), str(tmp_path / 'out'))
  held = beir.BeirDataset(directory=str(tmp_path / 'out')).load('sw')
  assert held.relevance == {'1': {'d1': 1.0}}
  assert held.documents == {'d1': beir.Text('A b', 'sw')}


def test_convert_command_describes_datasets(capsys):
  assert cli.main(['tasks', 'convert']) == 0
  assert len(capsys.readouterr().out.splitlines()) == len(
    public_data.list_data_sets()
  )
  assert cli.main(['tasks', 'convert', 'squad']) == 0
  assert 'train-v1.1.json 3527663986b8' in capsys.readouterr().out


def test_unknown_datasets_and_missing_files_are_rejected(tmp_path):
  with raises_error(errors.ConfigError, got='sib'):
    public_data.find_data_set('sib')
  with raises_error(errors.CorpusError, mentions='data/annotated'):
    public_data.convert('sib200', str(tmp_path), str(tmp_path / 'out'))
  with raises_error(
    errors.ConfigError,
    got='flores200',
    mentions='evaluate/similarity_search.gin',
  ):
    public_data.convert('flores200', str(tmp_path), str(tmp_path / 'out'))
  (tmp_path / 'dev-v1.1.json').write_text('{}')
  digest = hashlib.sha256(b'{}').hexdigest()
  with raises_error(errors.CorpusError, where='dev-v1.1.json', mentions=digest):
    public_data.convert('squad', str(tmp_path), str(tmp_path / 'out'))


def test_seahorse_is_converted(tmp_path):
  start = tmp_path / 'in'
  names = '\t'.join(f'question{i}' for i in range(1, 7))
  header = f'gem_id\tworker_lang\tsummary\tmodel\t{names}\n'
  _write(
    start / 'test.tsv',
    header
    + 'xsum-1\ten-US\t"A ""short"" one."\tt5\tYes\tNo\tYes\tUnsure\tNo\tYes\n'
    + 'xsum-2\ten-US\tNo article.\tt5\tYes\tYes\tYes\tYes\tYes\tYes\n'
    + 'wl-3\tes-ES\tMal.\treference\tNo\t\t\t\t\t\n',
  )
  _write(
    start / 'gem/xsum.jsonl',
    _lines({'gem_id': 'xsum-1', 'document': 'Long\ttext.\nMore.'}),
  )
  _write(start / 'gem/wl.jsonl', _lines({'gem_id': 'wl-3', 'source': 'Largo.'}))
  output_files = public_data.convert(
    'seahorse', str(start), str(tmp_path / 'out')
  )
  assert len(output_files) == 7 and 'question1/es/test.tsv' in output_files

  def read(number, language):
    (example,) = file_formats.read_files(
      'rated_pairs',
      str(tmp_path / f'out/question{number}/{language}/test.tsv'),
      language,
      labels={'Yes': '1', 'No': '0', 'Unsure': '0'},
    ).examples
    return example.text, example.paired_text, example.score

  assert read(1, 'en') == ('Long text. More.', 'A "short" one.', 1.0)
  assert read(4, 'en')[2] == read(5, 'en')[2] == 0.0
  assert read(1, 'es') == ('Largo.', 'Mal.', 0.0)


def test_mlqe_pe_is_converted(tmp_path):
  start = tmp_path / 'in'
  header = (
    'segid\toriginal\ttranslation\tscores\tmean\tz_scores\tz_mean\tmodel\n'
  )
  columns = '[90, 80]\t85.0\t[0.7, 0.8]\t0.75\t-0.5\n'
  _write(
    start / 'ru-en-dev/dev.ruen.df.short.tsv',
    f'{header}1\tОн "тут.\tHe is "here.\t{columns}',
  )
  _write(
    start / 'en-de/test20.ende.df.short.tsv',
    f'{header.replace("segid", "index")}0\tHe sees.\tEr sieht.\t{columns}',
  )
  output_files = public_data.convert(
    'mlqe_pe', str(start), str(tmp_path / 'out')
  )
  assert output_files == ['from_en/de/test.tsv', 'to_en/ru/dev.tsv']
  for name, language, text, other in (
    (output_files[0], 'de', 'Er sieht.', 'He sees.'),
    (output_files[1], 'ru', 'Он "тут.', 'He is "here.'),
  ):
    (example,) = file_formats.read_files(
      'rated_pairs',
      str(tmp_path / 'out' / name),
      language,
      paired_language='en',
    ).examples
    assert (example.text, example.paired_text) == (text, other)
    assert example.score == 0.75
