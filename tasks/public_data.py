"""Public evaluation sets: where they are, and how they become folders.

Nothing is downloaded here. `xlflax tasks fetch NAME` prints what a set is and
how it is had, and converts what was downloaded into a folder that gin files
read. Checksums are those that TensorFlow Datasets records.
"""

import dataclasses
import hashlib
import json
import pathlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping

from xlflax import errors, paths
from xlflax.data.labelled import ranking
from xlflax.data.labelled.readers import files

_SLOT = re.compile(r'\[\s*(\w+)\s*:\s*([^\]]*)\]')
_MASSIVE = {'train': 'train', 'dev': 'validation', 'test': 'test'}
Written = list[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicData:
  """A public data set.

  Attributes:
    name: of the set.
    kind: of its examples, or what is done with it.
    source: its repository or page.
    licence: as its authors state it.
    languages: how many, or which.
    splits: their names.
    fetch: how it is downloaded.
    use: the gin file or the command that reads it.
    tfds: name in TensorFlow Datasets; '' for none.
    sha256: name of an archive -> its checksum, where it is known.
    convert: writes a folder from what was downloaded, and returns the names of
      what it wrote; None where the download is read as it is.
  """

  name: str
  kind: str
  source: str
  licence: str
  languages: str
  splits: tuple[str, ...]
  fetch: str
  use: str
  tfds: str = ''
  sha256: Mapping[str, str] = dataclasses.field(default_factory=dict)
  convert: Callable[[pathlib.Path, pathlib.Path], Written] | None = None

  def describe(self) -> str:
    """Lines for a person."""
    checksums = [f'{name} {value}' for name, value in self.sha256.items()]
    fields = {
      'kind': self.kind,
      'source': self.source,
      'licence': self.licence,
      'languages': self.languages,
      'splits': ', '.join(self.splits),
      'download': self.fetch,
      'read by': self.use,
      'TFDS': self.tfds,
      'SHA-256': '; '.join(checksums),
      'converted': 'as it is'
      if self.convert is None
      else f'xlflax tasks fetch {self.name} --downloaded=DIR --output=DIR',
    }
    rows = [f'{key:10} {text}' for key, text in fields.items() if text]
    return '\n'.join([self.name, *rows])


def check_archives(data: PublicData, folder: pathlib.Path) -> None:
  """Raises a CorpusError for an archive that is not the published one."""
  for name, expected in data.sha256.items():
    for path in folder.rglob(name):
      found = hashlib.sha256(path.read_bytes()).hexdigest()
      if found != expected:
        raise errors.CorpusError(
          'An archive is not the published one',
          got=found,
          expected=expected,
          where=str(path),
          fix='download it again',
        )


def fetched(name: str, downloaded: str, output: str) -> Written:
  """Converts a download; returns the names of the files written.

  Raises:
    ConfigError: there is no such set, or nothing to convert.
    CorpusError: the folder lacks the set's files, or they are malformed.
  """
  data = find(name)
  source = paths.local(downloaded, where='--downloaded')
  if not source.is_dir():
    raise errors.CorpusError('There is no such folder', got=str(source))
  check_archives(data, source)
  if data.convert is None:
    raise errors.ConfigError(
      'The data set is read as it is downloaded',
      got=name,
      expected=data.use,
      where='--downloaded',
    )
  written = data.convert(source, paths.local(output, where='--output'))
  if not written:
    raise errors.CorpusError(
      'The folder has no file of the data set',
      got=str(source),
      expected=data.fetch,
    )
  return written


def find(name: str) -> PublicData:
  """The data set; a ConfigError if there is none of this name."""
  if name not in DATA:
    raise errors.ConfigError(
      'There is no such data set', got=name, expected=', '.join(DATA)
    )
  return DATA[name]


def _write(output: pathlib.Path, name: str, lines: Iterable[str]) -> str:
  path = output / name
  path.parent.mkdir(parents=True, exist_ok=True)
  paths.write_atomically(path, ''.join(f'{line}\n' for line in lines))
  return name


def _copied(pattern: str, name: Callable[[pathlib.Path], str]):
  """A converter that copies files of a pattern to names of the project's."""

  def convert(source: pathlib.Path, output: pathlib.Path) -> Written:
    written = []
    for path in sorted(source.rglob(pattern)):
      target = output / name(path)
      target.parent.mkdir(parents=True, exist_ok=True)
      shutil.copyfile(path, target)
      written.append(name(path))
    return written

  return convert


def _sib200(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`<language>/<split>.tsv` of `text<TAB>topic`."""
  written = []
  for path in sorted(source.rglob('*_*/*.tsv')):
    rows = (line.split('\t') for _, line in files.read_lines(path))
    header = next(rows, [])
    if {'text', 'category'} <= set(header):
      text, topic = header.index('text'), header.index('category')
      name = f'{path.parent.name}/{path.stem}.tsv'
      lines = [f'{row[text]}\t{row[topic]}' for row in rows]
      written.append(_write(output, name, lines))
  return written


def _massive(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`intents/<locale>/<split>.tsv` and `slots/<locale>/<split>.conll`."""
  written = []
  for path in sorted(source.rglob('??-??.jsonl')):
    rows = [value for _, value in files.read_json_lines(path)]
    for partition, split in _MASSIVE.items():
      own = [row for row in rows if row['partition'] == partition]
      if own:
        intents = [f'{row["utt"]}\t{row["intent"]}' for row in own]
        slots = ['\n'.join(slot_lines(row['annot_utt'])) + '\n' for row in own]
        place = f'{path.stem}/{split}'
        written += [
          _write(output, f'intents/{place}.tsv', intents),
          _write(output, f'slots/{place}.conll', slots),
        ]
  return written


def slot_lines(annotated: str) -> list[str]:
  """`word<TAB>tag` lines of an utterance in MASSIVE's form.

  Before: `wake me at [time : nine am]`; after: `wake\tO`, `me\tO`, `at\tO`,
  `nine\tB-time`, `am\tI-time`.
  """
  lines, place = [], 0
  for match in _SLOT.finditer(annotated):
    lines += [f'{word}\tO' for word in annotated[place : match.start()].split()]
    marks = ['B', *'I' * len(match[2].split())]
    lines += [
      f'{word}\t{mark}-{match[1]}'
      for mark, word in zip(marks, match[2].split(), strict=False)
    ]
    place = match.end()
  return lines + [f'{word}\tO' for word in annotated[place:].split()]


def _lareqa(source: pathlib.Path, output: pathlib.Path) -> Written:
  """One ranking of all languages: a question asks for sentences in any."""
  queries, documents, relevance = [], [], []
  for path in sorted(source.rglob('*.json')):
    language = path.stem
    data = files.read_json(path)['data']
    paragraphs = [p for article in data for p in article['paragraphs']]
    for number, paragraph in enumerate(paragraphs):
      context, breaks = paragraph['context'], paragraph['sentence_breaks']
      names = [f'{language}-{number}-{i}' for i in range(len(breaks))]
      documents += [
        {
          '_id': name,
          'text': f'{context[start:stop]} {context}',
          'language': language,
        }
        for name, (start, stop) in zip(names, breaks, strict=True)
      ]
      for asked in paragraph['qas']:
        queries.append(
          {
            '_id': f'{language}-{asked["id"]}',
            'text': asked['question'],
            'language': language,
          }
        )
        place = asked['answers'][0]['answer_start']
        relevance += [
          (asked['id'], name)
          for name, (start, stop) in zip(names, breaks, strict=True)
          if start <= place < stop
        ]
  if not queries:
    return []
  answers: dict[str, list[str]] = {}
  for question, document in relevance:
    answers.setdefault(question, []).append(document)
  return [
    _write(
      output,
      f'all/{kind}.jsonl',
      (json.dumps(row, ensure_ascii=False) for row in rows),
    )
    for kind, rows in (
      (ranking.QUERIES, queries),
      (ranking.DOCUMENTS, documents),
    )
  ] + [
    _write(
      output,
      f'all/{ranking.RELEVANCE}',
      (
        f'{query["_id"]} 0 {document} 1'
        for query in queries
        for document in answers.get(query['_id'].split('-', 1)[1], ())
      ),
    )
  ]


def _miracl(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`<language>/` with queries, documents and relevance of the dev set."""
  written: Written = []
  for path in sorted(source.rglob('qrels.miracl-v1.0-*-dev.tsv')):
    language = path.name.split('-')[2]
    (topics,) = source.rglob(f'topics.miracl-v1.0-{language}-dev.tsv')
    documents = sorted(
      source.rglob(f'miracl-corpus-v1.0-{language}/docs-*.jsonl*')
    )
    rows = (
      json.dumps(value, ensure_ascii=False)
      for part in documents
      for _, value in files.read_json_lines(part)
    )
    lines = {
      f'{ranking.QUERIES}.tsv': (text for _, text in files.read_lines(topics)),
      f'{ranking.DOCUMENTS}.jsonl': rows,
      ranking.RELEVANCE: (text for _, text in files.read_lines(path)),
    }
    written += [
      _write(output, f'{language}/{name}', several)
      for name, several in lines.items()
    ]
  return written


_SQUAD = 'https://rajpurkar.github.io/SQuAD-explorer'
_ALL = (
  PublicData(
    name='sib200',
    kind='classification (topics), clustering',
    source='github.com/dadelani/sib-200',
    licence='CC BY-SA 4.0',
    languages='205',
    splits=('train', 'dev', 'test'),
    fetch='clone the repository; give its folder data/annotated',
    use='finetune/classification.gin, evaluate/classification.gin with '
    "OPTIONS={'columns': {'text': 0, 'label': 1}}; evaluate/clustering.gin",
    convert=_sib200,
  ),
  PublicData(
    name='massive',
    kind='classification (intents), tagging (slots)',
    source='github.com/alexa/massive',
    licence='CC BY 4.0',
    languages='52 locales',
    splits=('train', 'validation', 'test'),
    fetch='unpack amazon-massive-dataset-1.1.tar.gz',
    use='finetune/classification.gin on intents, finetune/tagging.gin on slots '
    "with FORMAT='conll_iob2' and SCHEME='entities'",
    convert=_massive,
  ),
  PublicData(
    name='belebele',
    kind='multiple_choice',
    source='github.com/facebookresearch/belebele',
    licence='CC BY-SA 4.0',
    languages='122',
    splits=('test',),
    fetch='unpack Belebele.zip',
    use="evaluate/multiple_choice.gin with FORMAT='belebele'",
    convert=_copied('*_*.jsonl', lambda path: f'{path.stem}/test.jsonl'),
  ),
  PublicData(
    name='xcopa',
    kind='multiple_choice',
    source='github.com/cambridgeltl/xcopa',
    licence='CC BY 4.0',
    languages='11',
    splits=('val', 'test'),
    fetch='clone the repository; give its folder data',
    use='finetune/multiple_choice.gin, evaluate/multiple_choice.gin',
    convert=_copied(
      '*.??.jsonl',
      lambda path: f'{path.parent.name}/{path.name.split(".")[0]}.jsonl',
    ),
  ),
  PublicData(
    name='lareqa',
    kind='ranking (mAP@20)',
    source='github.com/google-research-datasets/lareqa',
    licence='CC BY-SA 4.0',
    languages='11',
    splits=('test',),
    fetch='clone the repository; give its folder xquad-r',
    use='xlflax evaluate --tasks=ranking --corpus=DIR',
    convert=_lareqa,
  ),
  PublicData(
    name='miracl',
    kind='ranking (nDCG@10)',
    source='github.com/project-miracl/miracl',
    licence='Apache 2.0',
    languages='18',
    splits=('dev',),
    fetch='download topics, qrels and corpus of the languages wanted',
    use='xlflax evaluate --tasks=ranking --corpus=DIR',
    convert=_miracl,
  ),
  PublicData(
    name='flores200',
    kind='sentence pairs (xsim, translation)',
    source='github.com/facebookresearch/flores',
    licence='CC BY-SA 4.0',
    languages='204',
    splits=('dev', 'devtest'),
    fetch='unpack flores200_dataset.tar.gz',
    use='evaluate/similarity_search.gin',
  ),
  PublicData(
    name='squad',
    kind='question_answering',
    source=_SQUAD,
    licence='CC BY-SA 4.0',
    languages='en',
    splits=('train', 'dev'),
    fetch=f'{_SQUAD}/dataset/train-v1.1.json, dev-v1.1.json',
    use='finetune/question_answering.gin',
    tfds='squad/v1.1',
    sha256={
      'train-v1.1.json': (
        '3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955'
      ),
      'dev-v1.1.json': (
        '95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9'
      ),
    },
  ),
  PublicData(
    name='squad_v2',
    kind='question_answering, some without an answer',
    source=_SQUAD,
    licence='CC BY-SA 4.0',
    languages='en',
    splits=('train', 'dev'),
    fetch=f'{_SQUAD}/dataset/train-v2.0.json, dev-v2.0.json',
    use="finetune/question_answering.gin with FORMAT='squad_v2'",
    tfds='squad/v2.0',
    sha256={
      'train-v2.0.json': (
        '68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002'
      ),
      'dev-v2.0.json': (
        '80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8'
      ),
    },
  ),
  PublicData(
    name='mlqa',
    kind='question_answering',
    source='github.com/facebookresearch/MLQA',
    licence='CC BY-SA 3.0',
    languages='ar de en es hi vi zh',
    splits=('dev', 'test'),
    fetch='unpack MLQA_V1.zip',
    use="evaluate/question_answering.gin with RULES='mlqa'",
    tfds='mlqa',
    sha256={
      'MLQA_V1.zip': (
        '246e8089933d13007fe80684d5c5c0713d6834cf8b3b4a0ec7c66f0a0d2baac8'
      )
    },
  ),
  PublicData(
    name='xnli',
    kind='classification',
    source='github.com/facebookresearch/XNLI',
    licence='CC BY-NC 4.0',
    languages='15',
    splits=('dev', 'test'),
    fetch='unpack XNLI-1.0.zip',
    use='evaluate/classification.gin with OPTIONS of docs/evaluation_data.md',
    tfds='xnli',
    sha256={
      'XNLI-1.0.zip': (
        '4ba1d5e1afdb7161f0f23c66dc787802ccfa8a25a3ddd3b165a35e50df346ab1'
      )
    },
  ),
  PublicData(
    name='pawsx',
    kind='classification, pair classification',
    source='github.com/google-research-datasets/paws',
    licence='free to use with attribution',
    languages='de en es fr ja ko zh',
    splits=('train', 'dev', 'test'),
    fetch='unpack x-final.tar.gz',
    use='evaluate/classification.gin, evaluate/pair_classification.gin',
    tfds='paws_x_wiki',
    sha256={
      'x-final.tar.gz': (
        '4146db499101d66e68ae4c8ed3cf9dadecd625f44b7d8cf3d4a0fe93afc4fd9f'
      )
    },
  ),
  PublicData(
    name='xtreme',
    kind='nine tasks',
    source='github.com/google-research/xtreme',
    licence='Apache 2.0; each data set its own',
    languages='40',
    splits=('train', 'validation', 'test'),
    fetch="run the repository's scripts/download_data.sh",
    use='xlflax evaluate --suite=xtreme --data=DIR',
  ),
)
DATA: Mapping[str, PublicData] = {one.name: one for one in _ALL}
