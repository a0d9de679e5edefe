"""Samples of all text formats that xlflax reads, with one text per record.

The samples are used by tests and campaigns that apply the same variation, such
as another line ending, to all readers.
"""

import dataclasses
import io
import json
import pathlib
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.sax import saxutils

from xlflax.data.corpus import corpus_directory, line_reader
from xlflax.data.dictionaries import bilingual_dictionary
from xlflax.data.supervised import file_formats
from xlflax.data.supervised.readers import parallel_reader
from xlflax.data.supervised.sources import beir
from xlflax.finetuning import pseudo_labels

Result = tuple[list[str], int]


@dataclasses.dataclass(frozen=True)
class Sample:
  """Format of text files, with its reader.

  Attributes:
    name: Name of the format.
    files: Function that maps the texts of the records to the contents of the
      files. A content of type str may be encoded and compressed in different
      ways.
    read: Function that maps the directory of the files to the texts of the
      records, and to the number of records that were reported and left out.
    bad: Records that the reader must report. An empty tuple if every line is a
      valid record.
    varied: Name of the file that contains the texts.
    reserved: Characters that a text cannot contain.
    skips_bad: Whether the reader reports and skips bad records. If False, the
      first bad record raises an error.
    escapes: Whether the format represents special characters by escape
      sequences, as JSON does.
    is_aligned: Whether lines with the same number in different files belong to
      one record.
  """

  name: str
  files: Callable[[Sequence[str]], Mapping[str, str | bytes]]
  read: Callable[[pathlib.Path], Result]
  bad: tuple[str, ...]
  varied: str
  reserved: str = '\t\n\r'
  skips_bad: bool = False
  escapes: bool = False
  is_aligned: bool = False


def _lines(
  name: str, line: str, head: str = '', **others: str
) -> Callable[[Sequence[str]], dict[str, str]]:
  """Returns files with one line per text, in which `@` is replaced by the text.

  In `others`, `%` is replaced by the number of the record. A record that starts
  with NUL is written without the line.
  """

  def make(texts: Sequence[str]) -> dict[str, str]:
    files = {name: head}
    for number, text in enumerate(texts):
      is_raw = text.startswith('\0')
      numbered = line.replace('%', str(number))
      files[name] += text[1:] if is_raw else numbered.replace('@', text)
      files[name] += '\n'
    for other, other_line in others.items():
      files[other.replace('_', '.')] = ''.join(
        other_line.replace('%', str(number)) + '\n'
        for number in range(len(texts))
      )
    return files

  return make


def _json_lines(name: str, record: Mapping[str, Any], **others: str):
  """Returns files with one JSON object per text; see `_lines`."""

  def make(texts: Sequence[str]) -> dict[str, str]:
    encoded = [
      text
      if text.startswith('\0')
      else '\0'
      + json.dumps(record)
      .replace('%', str(number))
      .replace('@', json.dumps(text)[1:-1])
      for number, text in enumerate(texts)
    ]
    return _lines(name, '', **others)(encoded)

  return make


def _squad(texts: Sequence[str]) -> dict[str, str]:
  questions = [
    text[1:]
    if text.startswith('\0')
    else json.dumps(
      {
        'context': 'Paris is in France.',
        'qas': [
          {
            'id': str(number),
            'question': text,
            'answers': [{'text': 'France', 'answer_start': 12}],
          }
        ],
      }
    )
    for number, text in enumerate(texts)
  ]
  separator = ',\n'
  return {
    'a.json': f'{{"data": [{{"paragraphs": [\n{separator.join(questions)}]}}]}}'
  }


def _reviews(texts: Sequence[str]) -> dict[str, str]:
  items = [
    text[1:]
    if text.startswith('\0')
    else f'<item><rating>5.0</rating><text>{saxutils.escape(text)}</text></item>'
    for text in texts
  ]
  return {'a.review': '\n'.join(['<items>', *items, '</items>', ''])}


def _memory(texts: Sequence[str]) -> dict[str, str]:
  units = [
    text[1:]
    if text.startswith('\0')
    else f'<tu><tuv xml:lang="de"><seg>{saxutils.escape(text)}</seg></tuv>'
    '<tuv xml:lang="en"><seg>yes</seg></tuv></tu>'
    for text in texts
  ]
  body = '\n'.join(units)
  return {
    'parallel/de-en.tmx': f'<tmx version="1.4"><body>\n{body}\n</body></tmx>\n'
  }


def _archive(texts: Sequence[str]) -> dict[str, bytes]:
  sink = io.BytesIO()
  with zipfile.ZipFile(sink, 'w') as archive:
    text = ''.join(f'{text}\n' for text in texts)
    archive.writestr('a.de-en.de', text.encode('utf-8', 'surrogateescape'))
    archive.writestr('a.de-en.en', 'yes\n' * len(texts))
  return {'parallel/de-en.zip': sink.getvalue()}


def _tar(texts: Sequence[str]) -> dict[str, bytes]:
  sink = io.BytesIO()
  with tarfile.open(fileobj=sink, mode='w') as archive:
    for number, text in enumerate(texts):
      member = tarfile.TarInfo(f'{number:03d}.txt')
      content = text.encode('utf-8', 'surrogateescape')
      member.size = len(content)
      archive.addfile(member, io.BytesIO(content))
  return {'mono/en.tar': sink.getvalue()}


def _find(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the file with a name, which may be compressed."""
  path = folder / name
  return path if path.exists() else path.with_name(f'{path.name}.gz')


def _examples(
  reader: str, name: str, get: Callable[[Any], str | None], **options: Any
) -> Callable[[pathlib.Path], Result]:
  """Reads a file in a format for labeled examples."""

  def read(folder: pathlib.Path) -> Result:
    reading = file_formats.find_reader(reader).read(
      _find(folder, name), 'en', **options
    )
    texts = [get(example) for example in reading.examples]
    return [text for text in texts if text is not None], len(reading.problems)

  return read


def _text(example) -> str:
  return example.text


def _first_text(example) -> str | None:
  return example.text if example.id.endswith(('.0', '#0')) else None


def _word(example) -> str:
  return example.words[0]


def _corpus(name: str) -> Callable[[pathlib.Path], Result]:
  """Reads a file of a corpus directory."""

  def read(folder: pathlib.Path) -> Result:
    bad: list[Exception] = []
    path = _find(folder, name)
    if path.parent.name == 'mono':
      lines = corpus_directory.read_monolingual(path, on_bad_record=bad.append)
      return [line.text for line in lines], len(bad)
    pairs = corpus_directory.read_parallel(path, on_bad_record=bad.append)
    return [pair.source for pair in pairs], len(bad)

  return read


def _dictionary(name: str, form: str) -> Callable[[pathlib.Path], Result]:
  def read(folder: pathlib.Path) -> Result:
    bad: list[Exception] = []
    dictionary = bilingual_dictionary.Dictionary.read(
      str(_find(folder, name)),
      languages=('en', 'de'),
      format=form,
      on_bad_record=bad.append,
    )
    return [entry.word for entry in dictionary.entries], len(bad)

  return read


def _alignment(*names: str) -> Callable[[pathlib.Path], Result]:
  def read(folder: pathlib.Path) -> Result:
    reading = file_formats.find_reader('word_alignment').read(
      tuple(_find(folder, name) for name in names), ('de', 'en')
    )
    first_sentences = [example.source_words[0] for example in reading.examples]
    return first_sentences, len(reading.problems)

  return read


def _collections(reader: str) -> Callable[[pathlib.Path], Result]:
  def read(folder: pathlib.Path) -> Result:
    paths = [_find(folder, name) for name in ('a', 'b', 'gold')]
    sentences = file_formats.find_reader(reader).read(
      *paths, languages=('de', 'en')
    )
    return list(sentences.first.values()), 0

  return read


def _parallel_columns(folder: pathlib.Path) -> Result:
  pairs = parallel_reader.read_tsv(_find(folder, 'a.tsv'))
  return [pair.source for pair in pairs], 0


def _parallel_files(folder: pathlib.Path) -> Result:
  pairs = parallel_reader.read_lines([_find(folder, 'a'), _find(folder, 'b')])
  return [pair.source for pair in pairs], 0


def _documents(folder: pathlib.Path) -> Result:
  ranked = beir.BeirDataset(directory=str(folder)).load('en')
  return [text.text for text in ranked.documents.values()], 0


def _judgments(folder: pathlib.Path) -> Result:
  ranked = beir.BeirDataset(directory=str(folder)).load('en')
  return list(ranked.relevance['q']), 0


def _candidates(folder: pathlib.Path) -> Result:
  ranked = beir.BeirDataset(directory=str(folder)).load('en')
  return list((ranked.candidates or {})['q']), 0


def _ranking(
  make: Callable[[Sequence[str]], Mapping[str, str | bytes]], named: str = ''
):
  """Adds the files of a retrieval data set that the texts do not vary.

  Args:
    make: Function that maps the texts to the content of the file that contains
      them.
    named: Name, without its extension, of the file that contains the texts, if
      they are document ids. Documents with these ids are then added. Otherwise
      ''.
  """

  def files(texts: Sequence[str]) -> dict[str, str | bytes]:
    ids = [
      text
      for text in texts
      if not text.startswith('\0')
      and text.encode(errors='replace').decode() == text
    ]
    documents = ''.join(
      json.dumps({'_id': text, 'text': 'A text.'}) + '\n' for text in ids
    )
    base: dict[str, str | bytes] = {
      'en/queries.tsv': 'q\tWho?\n',
      'en/relevance.tsv': f'q\t{ids[0] if named else "0"}\t1\n',
    }
    if named:
      base['en/documents.jsonl'] = documents
    return base | dict(make(texts))

  return files


def _word_lines(folder: pathlib.Path) -> Result:
  source = pseudo_labels.WordLines(files={'en': str(_find(folder, 'a.txt'))})
  return [example.words[0] for example in source.load('en')], 0


def _plain_lines(folder: pathlib.Path) -> Result:
  path = _find(folder, 'a.txt')
  return [
    line_reader.decode_line(line, path, number)
    for number, line in line_reader.read_lines(path)
  ], 0


_XCOPA = {
  **{'premise': '@', 'choice1': 'It is wet.', 'choice2': 'It is dry.'},
  **{'question': 'effect', 'label': 0},
}
_BELEBELE = {
  **{'flores_passage': '@', 'question': 'Who?', 'correct_answer_num': '1'},
  **{f'mc_answer{number}': f'Number {number}.' for number in range(1, 5)},
}
_BELEBELE_COLUMNS = (
  'passage',
  'question',
  *(f'answer{number}' for number in range(1, 5)),
  'correct_answer_num',
)
_STORY_HEADER = (
  'InputStoryid\tInputSentence1\tInputSentence2\tInputSentence3\t'
  'InputSentence4\tRandomFifthSentenceQuiz1\tRandomFifthSentenceQuiz2\t'
  'AnswerRightEnding\n'
)
_SPACED = ' \t\n\r'
_CONLLU_LINE = '1\t@\t_\tNOUN\t_\t_\t0\troot\t_\t_\n'

SAMPLES: tuple[Sample, ...] = (
  Sample(*('lines', _lines('a.txt', '@'), _plain_lines, (), 'a.txt')),
  Sample(
    *('corpus text', _lines('mono/en.txt', '@'), _corpus('mono/en.txt'), ()),
    varied='mono/en.txt',
    skips_bad=True,
  ),
  Sample(
    *('corpus pairs', _lines('parallel/de-en.tsv', '@\tyes')),
    _corpus('parallel/de-en.tsv'),
    ('one column', 'a\tb\tc', '\tb', 'a\t', ''),
    varied='parallel/de-en.tsv',
    skips_bad=True,
  ),
  Sample(
    *('corpus records', _json_lines('mono/en.jsonl', {'text': '@'})),
    _corpus('mono/en.jsonl'),
    ('{"text": ', '[]', '{"text": null}', '{"text": ["a"]}', '{"a": "b"}'),
    varied='mono/en.jsonl',
    skips_bad=True,
    escapes=True,
  ),
  Sample(
    'corpus record pairs',
    _json_lines(
      'parallel/de-en.jsonl', {'translation': {'de': '@', 'en': 'yes'}}
    ),
    _corpus('parallel/de-en.jsonl'),
    ('{"translation": {"de": "a"}}', '{"translation": null}', '7'),
    varied='parallel/de-en.jsonl',
    skips_bad=True,
    escapes=True,
  ),
  Sample(
    *('moses', lambda texts: _moses(texts), _corpus('parallel/de-en.de'), ()),
    varied='parallel/de-en.de',
    skips_bad=True,
    is_aligned=True,
  ),
  Sample(
    *('moses archive', _archive, _corpus('parallel/de-en.zip'), ()),
    varied='parallel/de-en.zip',
    skips_bad=True,
  ),
  Sample(
    *('tar', _tar, _corpus('mono/en.tar'), ()),
    varied='mono/en.tar',
    skips_bad=True,
  ),
  Sample(
    *('translation memory', _memory, _corpus('parallel/de-en.tmx'), ()),
    varied='parallel/de-en.tmx',
    reserved='\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\0\uffff',
    skips_bad=True,
  ),
  Sample(
    *('dictionary', _lines('en-de.tsv', '@\tja')),
    _dictionary('en-de.tsv', 'tsv'),
    ('one', 'a\tb\tc', 'a\tb\t1\td', '\tb', ''),
    varied='en-de.tsv',
    skips_bad=True,
  ),
  Sample(
    *('muse', _lines('en-de.txt', '@ ja'), _dictionary('en-de.txt', 'muse')),
    ('one', 'a b c', ''),
    varied='en-de.txt',
    reserved=_SPACED,
    skips_bad=True,
  ),
  Sample(
    *(
      'tsv',
      _lines('a.tsv', '@\tGood.\tyes'),
      _examples('tsv', 'a.tsv', _text),
    ),
    ('one column', 'a\tb', 'a\tb\tc\td', '\tb\tyes'),
    varied='a.tsv',
  ),
  Sample(
    *('quoted tsv', _lines('a.tsv', '"@"\t"Good."\t"yes"')),
    _examples('tsv', 'a.tsv', _text, quoting='csv'),
    ('"a\tGood.\tyes', '"a"b\tGood.\tyes', '"a"\t"b"', 'a\tb\tc\td'),
    varied='a.tsv',
    reserved='"\t\n\r',
  ),
  Sample(
    *('named tsv', _lines('a.tsv', '@\tGood.\tyes', 'one\ttwo\tlabel\n')),
    _examples(
      *('tsv', 'a.tsv', _text),
      columns={'text': 'one', 'paired_text': 'two', 'label': 'label'},
    ),
    ('one column', 'a\tb', 'a\tb\tc\td', '\tb\tyes'),
    varied='a.tsv',
  ),
  Sample(
    *('rated_pairs', _lines('a.tsv', '@\tGood.\t2.5')),
    _examples('rated_pairs', 'a.tsv', _text),
    ('one column', 'a\tb\tx', 'a\tb\t1\td', '\tb\t1', 'a\tb\tnan'),
    varied='a.tsv',
  ),
  Sample(
    'jsonl',
    _json_lines(
      'a.jsonl', {'sentence1': '@', 'sentence2': 'b', 'gold_label': 'yes'}
    ),
    _examples('jsonl', 'a.jsonl', _text),
    (
      *('{"sentence1": ', '[]', '{"sentence1": "a"}', 'text'),
      '{"sentence1": null, "sentence2": "b", "gold_label": "yes"}',
      '{"sentence1": ["a"], "sentence2": "b", "gold_label": "yes"}',
      '{"sentence1": {"a": 1}, "sentence2": "b", "gold_label": "yes"}',
      '{"sentence1": "a", "sentence2": "b", "gold_label": ["yes"]}',
    ),
    varied='a.jsonl',
    escapes=True,
  ),
  Sample(
    *('search tsv', _lines('a.tsv', '@\tIt was she.')),
    _examples('search', 'a.tsv', _first_text),
    ('one column', 'a\t ', '\tb'),
    varied='a.tsv',
  ),
  Sample(
    'search',
    _json_lines(
      'a.jsonl', {'query': '@', 'positive': 'She.', 'negatives': ['He.']}
    ),
    _examples('search', 'a.jsonl', _first_text),
    (
      *('{', '"a"', '{"query": "a"}', '{"query": null, "positive": "b"}'),
      '{"query": "a", "positive": ["b"]}',
      '{"query": "a", "positive": "b", "negatives": [1]}',
      '{"query": "a", "positive": "b", "negatives": {"c": 1}}',
    ),
    varied='a.jsonl',
    escapes=True,
  ),
  Sample(
    *('xcopa', _json_lines('a.jsonl', _XCOPA)),
    _examples('xcopa', 'a.jsonl', _first_text),
    ('{', 'null', '{"premise": "a"}', json.dumps(_XCOPA | {'label': 2})),
    varied='a.jsonl',
    escapes=True,
  ),
  Sample(
    *('belebele', _json_lines('a.jsonl', _BELEBELE)),
    _examples('belebele', 'a.jsonl', _first_text),
    ('{', '1', json.dumps(_BELEBELE | {'question': None})),
    varied='a.jsonl',
    escapes=True,
  ),
  Sample(
    'belebele_training',
    _lines(
      'a.tsv', '@\tWho?\ta\tb\tc\td\t1.0', '\t'.join(_BELEBELE_COLUMNS) + '\n'
    ),
    _examples('belebele_training', 'a.tsv', _first_text),
    ('a\tb', 'a\tb\tc\td\te\tf\t9', 'a\tb\tc\td\te\tf\t1\tg'),
    varied='a.tsv',
    reserved='"\t\n\r',
  ),
  Sample(
    'xstory_cloze',
    _lines('a.tsv', '%\t@\tB.\tC.\tD.\tE.\tF.\t1', _STORY_HEADER),
    _examples(
      *('xstory_cloze', 'a.tsv'),
      lambda example: (
        example.text.removesuffix(' B. C. D.')
        if example.id.endswith('#0')
        else None
      ),
    ),
    ('a\tb', 'a\tb\tc\td\te\tf\tg\t1\th'),
    varied='a.tsv',
    reserved='"\t\n\r',
    skips_bad=True,
  ),
  Sample(
    'xwinograd',
    _json_lines(
      *('a.jsonl',),
      {'sentence': '_ @', 'option1': 'A', 'option2': 'B', 'answer': '2'},
    ),
    _examples(
      *('xwinograd', 'a.jsonl'),
      lambda example: (
        example.paired_text if example.id.endswith('#0') else None
      ),
    ),
    ('{', '[1]', '{"sentence": "a"}'),
    varied='a.jsonl',
    reserved='_\n\r\t',
    escapes=True,
  ),
  *(
    Sample(
      *(name, _lines('a.txt', f'{prefix}@ O\n')),
      _examples(name, 'a.txt', _word),
      (f'{prefix}a b O', f'{prefix}a'),
      varied='a.txt',
      reserved=_SPACED,
    )
    for name, prefix in (
      *(('conll', ''), ('conll_iob1', ''), ('conll_iob2', '')),
      ('wikiann', 'en:'),
    )
  ),
  Sample(
    *('tagged tsv', _lines('a.txt', '@\tO\n')),
    _examples('conll', 'a.txt', _word),
    ('a b O', 'a\tb\tO', 'a'),
    varied='a.txt',
    reserved=_SPACED,
  ),
  Sample(
    *('uner', _lines('a.txt', '1\t@\tO\t-\n')),
    _examples('uner', 'a.txt', _word),
    ('1\ta', '1\ta\tO\t-\tb', '1 a O'),
    varied='a.txt',
  ),
  *(
    Sample(
      *(name, _lines('a.conllu', _CONLLU_LINE)),
      _examples(name, 'a.conllu', _word),
      (
        *('1\ta\t_\tNOUN\t_\t_\t0\troot\t_', '2\t' + _CONLLU_LINE[2:-1]),
        *(_CONLLU_LINE[:-1] + '\t_', 'a NOUN'),
      ),
      varied='a.conllu',
    )
    for name in ('conllu', 'conllu_tags')
  ),
  *(
    Sample(
      *(name, _squad, _examples(name, 'a.json', lambda e: e.question)),
      (
        *('{}', 'null', '{"context": "a", "qas": [{"id": 1}]}'),
        '{"context": "a", "qas": [{"id": 1, "question": "b", "answers": "c"}]}',
        '{"context": "a", "qas": [{"id": 1, "question": "b", "answers": '
        '{"text": ["a"], "answer_start": [0]}}]}',
      ),
      varied='a.json',
      escapes=True,
    )
    for name in ('squad', 'squad_v2')
  ),
  Sample(
    *('webis_cls', _reviews, _examples('webis_cls', 'a.review', _text)),
    (
      '<item><rating>5.0</rating></item>',
      '<item><text>a</text></item>',
      '<item><rating>good</rating><text>a</text></item>',
      '<item>',
    ),
    varied='a.review',
    reserved='\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\0\uffff',
  ),
  Sample(
    *('word_alignment', _lines('a', '@ b ||| c d', links='0-0 1-1')),
    *(_alignment('a', 'links'), ('a b c', 'a ||| ', 'a ||| b ||| c')),
    varied='a',
    reserved=_SPACED,
  ),
  Sample(
    *(
      'numbered word_alignment',
      _lines('a', '%\t@ b', b='%\tc d', links='%\t0-0'),
    ),
    *(_alignment('a', 'b', 'links'), ('7 a b', 'a b', '9\ta b\n9\ta b')),
    varied='a',
    reserved=_SPACED,
  ),
  Sample(
    *('bucc', _lines('a', 'a%\t@', b='b%\tyes', gold='a%\tb%')),
    *(_collections('bucc'), ('one column', '\tb', 'a9\tb\na9\tb')),
    varied='a',
  ),
  Sample(
    *('mined lines', _lines('a', '@', b='yes', gold='%')),
    *(_collections('lines'), ()),
    varied='a',
  ),
  Sample(
    *('parallel tsv', _lines('a.tsv', '@\tyes'), _parallel_columns),
    ('one column', 'a\tb\tc', '\tb', 'a\t', ''),
    varied='a.tsv',
  ),
  Sample(
    *('parallel lines', _lines('a', '@', b='yes'), _parallel_files, ('',)),
    varied='a',
  ),
  Sample(
    *('documents tsv', _ranking(_lines('en/documents.tsv', '%\t@'))),
    *(_documents, ('one column', 'a\tb\tc', '\tb', '9\tb\n9\tb')),
    varied='en/documents.tsv',
  ),
  Sample(
    'documents',
    _ranking(_json_lines('en/documents.jsonl', {'_id': '%', 'text': '@'})),
    _documents,
    (
      *('{', '[]', '{"_id": "a"}', '{"_id": null, "text": "a"}'),
      *('{"_id": ["a"], "text": "a"}', '{"_id": "a", "text": ["a"]}'),
      *(
        '{"_id": "9", "text": "a"}\n{"_id": "9", "text": "a"}',
        '{"_id": "a", "text": "b", "title": {}}',
      ),
      '{"_id": "a", "text": "b", "language": 5}',
    ),
    varied='en/documents.jsonl',
    reserved='%\t\n\r',
    escapes=True,
  ),
  Sample(
    'judgments',
    _ranking(_lines('en/relevance.tsv', 'q\t@\t1'), named='relevance'),
    _judgments,
    ('q', 'q 0', 'q 0 x', 'q 0 d 1 2'),
    varied='en/relevance.tsv',
    reserved=_SPACED,
  ),
  Sample(
    'candidates',
    _ranking(_lines('en/candidates.tsv', 'q\t@'), named='candidates'),
    _candidates,
    ('q', 'q d 0.5 x'),
    varied='en/candidates.tsv',
    reserved=_SPACED,
  ),
  Sample(
    *('unlabeled words', _lines('a.txt', '@ b'), _word_lines, ()),
    varied='a.txt',
    reserved=_SPACED,
  ),
)


def _moses(texts: Sequence[str]) -> dict[str, str]:
  files = _lines('parallel/de-en.de', '@', others='yes')(texts)
  files['parallel/de-en.en'] = files.pop('others')
  return files


BY_NAME = {sample.name: sample for sample in SAMPLES}
