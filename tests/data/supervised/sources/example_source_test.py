"""Tests of sources of labeled examples in files."""

import json
import subprocess
import sys

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised import file_formats, label_sets
from xlflax.data.supervised.sources import example_source
from xlflax.utils import errors


@pytest.fixture
def nli(tmp_path):
  """Source with three French examples and one Thai example."""
  (tmp_path / 'fr.tsv').write_text('a\tb\t0\nc\td\t1\ne\tf\t0\n')
  (tmp_path / 'th.tsv').write_text('ฝน\tแดด\t1\n')
  return example_source.FileDataset(
    format='tsv',
    options={'labels': {'0': 'no', '1': 'yes'}},
    files={name: str(tmp_path / f'{name}.tsv') for name in ('fr', 'th')},
  )


def test_load_returns_the_examples_of_a_language(nli):
  assert nli.languages() == ('fr', 'th')
  assert [e.label for e in nli.load('fr')] == ['no', 'yes', 'no']
  assert nli.load('th')[0].text == 'ฝน'
  assert nli.problems('fr') == ()


def test_language_options_override_columns(tmp_path):
  (tmp_path / 'en').write_text('a dog\tan animal\tyes\n' * 2)
  (tmp_path / 'fr').write_text('yes\tun chien\tun animal\n' * 2)
  files = {code: str(tmp_path / code) for code in ('en', 'fr')}
  columns = {'label': 0, 'text': 1, 'paired_text': 2}
  examples = example_source.FileDataset(
    format='tsv', files=files, language_options={'fr': {'columns': columns}}
  )
  assert [examples.load(code)[0].label for code in files] == ['yes', 'yes']
  assert examples.load('fr')[0].text == 'un chien'
  with raises_error(errors.ConfigError, got='de'):
    example_source.FileDataset(
      format='tsv', files=files, language_options={'de': {'columns': columns}}
    )


def test_max_examples_limits_each_language(nli):
  cut = example_source.FileDataset(
    format=nli.format, files=nli.files, max_examples=2
  )
  assert [e.id for e in cut.load('fr')] == ['0', '1']


def test_fingerprint_depends_on_content_not_path(nli, tmp_path):
  before = nli.fingerprint()
  (tmp_path / 'copy.tsv').write_text((tmp_path / 'th.tsv').read_text())
  moved = example_source.FileDataset(
    format='tsv',
    options=nli.options,
    files=dict(nli.files) | {'th': str(tmp_path / 'copy.tsv')},
  )
  assert moved.fingerprint() == before
  (tmp_path / 'th.tsv').write_text('ฝน\tแดด\t0\n')
  assert nli.fingerprint() != before
  (tmp_path / 'th.tsv').unlink()
  assert nli.fingerprint() not in (before, moved.fingerprint())


def test_files_of_one_language_are_concatenated(tmp_path):
  for folder in 'xy':
    (tmp_path / f'{folder}.tsv').write_text(f'{folder}\tO\n')
  joined = example_source.FileDataset(
    format='conll',
    files={'en': (str(tmp_path / 'x.tsv'), str(tmp_path / 'y.tsv'))},
  )
  assert [(e.id, e.words) for e in joined.load('en')] == [
    ('0', ('x',)),
    ('y.tsv:0', ('y',)),
  ]


def test_language_pairs_of_questions(tmp_path):
  path = tmp_path / 'q.json'
  path.write_text(
    json.dumps(
      {
        'data': [
          {
            'paragraphs': [
              {
                'context': 'sí',
                'qas': [
                  {
                    'id': 'a',
                    'question': 'is it?',
                    'answers': [{'text': 'no', 'answer_start': 0}],
                  }
                ],
              }
            ]
          }
        ]
      }
    )
  )
  questions = example_source.FileDataset(
    format='squad', files={'es-en': str(path)}
  )
  (example,) = questions.load('es-en')
  assert (example.language, example.question_language) == ('es', 'en')
  (problem,) = questions.problems('es-en')
  assert 'question a' in problem


def test_texts_of_a_pair_may_have_different_languages(tmp_path):
  path = tmp_path / 'en-fr-translated.tsv'
  path.write_text("It rains\tIt is wet\tIl pleut\tC'est mouillé\tyes\n")
  mixed = example_source.FileDataset(
    format='tsv',
    files={'fr-en': str(path)},
    options={'columns': {'text': 2, 'paired_text': 1, 'label': 4}},
  )
  (example,) = mixed.load('fr-en')
  assert (example.text, example.paired_text) == ('Il pleut', 'It is wet')
  assert (example.language, example.paired_language) == ('fr', 'en')


def test_word_alignment_files(tmp_path):
  (tmp_path / 'text').write_text('ναί ||| yes\n')
  (tmp_path / 'gold').write_text('1-1\n')
  links = example_source.FileDataset(
    format='word_alignment',
    options={'first_index': 1},
    files={'grc-en': (str(tmp_path / 'text'), str(tmp_path / 'gold'))},
  )
  assert links.load('grc-en')[0].sure == {(0, 0)}
  with raises_error(errors.ConfigError, got='de'):
    example_source.FileDataset(
      format='word_alignment', files={'de': ('a', 'b')}
    ).load('de')


def test_missing_languages_and_files_are_rejected(nli, tmp_path):
  with raises_error(errors.CorpusError, got='sw', mentions=('fr', 'th')):
    nli.load('sw')
  (tmp_path / 'fr.tsv').unlink()
  with raises_error(errors.CorpusError, mentions='fr.tsv'):
    nli.load('fr')
  assert nli.load('th')


@pytest.mark.parametrize(
  'arguments, values',
  [
    ({'format': 'xml'}, ('tsv', 'jsonl', 'webis_cls', 'xml')),
    (
      {'format': 'conllu', 'options': {'has_header': False}},
      ('conllu', 'keep_subtypes', 'has_header'),
    ),
    ({'format': 'tsv', 'files': {}}, 'FileDataset.files'),
  ],
)
def test_invalid_arguments_are_rejected(arguments, values):
  with raises_error(errors.ConfigError, mentions=values):
    example_source.FileDataset(**({'files': {'en': 'a'}} | arguments))


def test_invalid_part_names_are_rejected():
  dataset = example_source.FileDataset(format='conll', files={'en-de': 'a'})
  with raises_error(
    errors.ConfigError, got='en-de', mentions=('fr', 'zh_Hans')
  ):
    dataset.load('en-de')


@pytest.mark.parametrize(
  'format, kind',
  [
    ('jsonl', 'classification'),
    ('wikiann', 'tagging'),
    ('conllu', 'parsing'),
    ('conllu_tags', 'tagging'),
    ('squad', 'question_answering'),
  ],
)
def test_kind_of_each_format(format, kind):
  assert file_formats.find_reader(format).example.KIND == kind


def test_bitext_mining_files(tmp_path):
  for name, text in (
    ('fr', 'f\toui\n'),
    ('en', 'e\tyes\n'),
    ('gold', 'f\te\n'),
    ('other', 'e\tno\n'),
  ):
    (tmp_path / name).write_text(text)

  def mined(*names, **options):
    return example_source.BitextMiningFiles(
      files={'fr-en': tuple(str(tmp_path / n) for n in names)}, **options
    )

  assert mined('fr', 'en', 'gold').load('fr-en').gold == {('f', 'e')}
  assert mined('fr', 'en').load('fr-en').gold is None
  lines = mined('fr', 'en', format='lines').load('fr-en')
  assert lines.first == {'0': 'f\toui'}
  prints = {
    mined(*names).fingerprint()
    for names in (
      ('fr', 'en'),
      ('fr', 'en', 'gold'),
      ('fr', 'other'),
      ('fr', 'none'),
    )
  }
  assert len(prints) == 4
  with raises_error(errors.ConfigError, mentions=('fr-en', '(first')):
    mined('fr', format='lines').load('fr-en')


def test_labels_of_source_and_languages(nli, tmp_path):
  assert label_sets.labels_of(nli) == ('no', 'yes')
  assert label_sets.labels_of(nli, ('th',)) == ('yes',)
  (tmp_path / 'blind.tsv').write_text('a\tb\n')
  blind = example_source.FileDataset(
    format='tsv', files={'ur': str(tmp_path / 'blind.tsv')}
  )
  with raises_error(
    errors.CorpusError, mentions=('ur', tmp_path / 'blind.tsv', 'OPTIONS')
  ):
    label_sets.labels_of(blind)


def _write_labels(tmp_path, format: str, labels: tuple[str, ...]) -> str:
  """Writes a file of examples in a format, one for each label."""
  path = tmp_path / f'labels.{format}'
  lines = {
    'tsv': [f'It rains.\t{label}' for label in labels],
    'jsonl': [
      f'{{"sentence1": "a", "sentence2": "b", "gold_label": "{label}"}}'
      for label in labels
    ],
    'conll': [f'rains\t{label}' for label in labels],
  }
  path.write_text('\n'.join([*lines[format], '']))
  return str(path)


@pytest.mark.parametrize('format', ['tsv', 'jsonl', 'conll'])
@pytest.mark.parametrize(
  ('first', 'second'),
  [('positive', 'POSITIVE'), ('set alarm', 'Set  Alarm'), ('Yes', 'yes')],
)
def test_similar_labels_cause_a_warning(
  tmp_path, format, first, second, caplog
):
  options = {'columns': {'text': 0, 'label': 1}} if format == 'tsv' else {}
  options |= {'separator': 'tab'} if format == 'conll' else {}
  path = _write_labels(tmp_path, format, (first, 'other', second))
  source = example_source.FileDataset(
    format=format, files={'en': path}, options=options
  )
  assert len(label_sets.labels_of(source)) == 3
  [record] = caplog.records
  assert_mentions(record.getMessage(), repr(first), repr(second), path)


def test_similar_labels_are_logged_in_one_message(tmp_path, caplog):
  labels = ('yes', 'Yes', 'no', 'NO')
  source = example_source.FileDataset(
    format='jsonl', files={'en': _write_labels(tmp_path, 'jsonl', labels)}
  )
  label_sets.labels_of(source)
  [record] = caplog.records
  assert_mentions(record.getMessage(), *map(repr, labels))


@pytest.mark.parametrize('kind', ['tags', 'classes', 'slots'])
def test_distinct_labels_cause_no_warning(tmp_path, kind, caplog):
  labels = {
    'tags': ('NN', 'NNP', 'Ncmsn', 'NcmsN', ',', '.'),
    'classes': ('1', '2', 'not entailment', 'entailment'),
    'slots': ('B-LOC', 'I-LOC', 'O', 'B-ORG'),
  }[kind]
  source = example_source.FileDataset(
    format='conll',
    files={'en': _write_labels(tmp_path, 'conll', labels)},
    options={'separator': 'tab'},
  )
  label_sets.labels_of(source)
  assert not caplog.records


@pytest.mark.parametrize(
  ('text', 'hint'),
  [
    ('It rains.\n', '1 column.'),
    ('It rains.\t\n', '2 columns.'),
    (
      '{\n"data": [\n{\n"paragraphs": []}]}\n',
      'finetune/question_answering.gin',
    ),
    ('{"text": "It rains.", "label": "1"}\n', "'jsonl'"),
  ],
)
def test_hints_for_files_without_labels(tmp_path, text, hint):
  path = tmp_path / 'a.tsv'
  path.write_text(text)
  source = example_source.FileDataset(
    format='tsv',
    files={'en': str(path)},
    options={'columns': {'text': 0, 'label': 1}},
  )
  with raises_error(errors.CorpusError) as caught:
    label_sets.labels_of(source)
  assert hint in caught.value.fix
  assert '--gin.OPTIONS' not in caught.value.fix


def test_entity_labels_include_both_prefixes_of_each_type(tmp_path):
  def labels_in(text):
    (tmp_path / 'a.conll').write_text(text)
    return label_sets.labels_of(
      example_source.FileDataset(
        format='conll', files={'en': str(tmp_path / 'a.conll')}
      )
    )

  assert labels_in('Rom\tB-LOC\nis\tO\n') == ('B-LOC', 'I-LOC', 'O')
  assert labels_in('Rom\tB-LOC\nis\tVERB\n') == ('B-LOC', 'VERB')


def test_labels_unseen_in_training_are_rejected(nli):
  examples = nli.load('fr')
  label_sets.check_labels(examples, ('no', 'yes'), 'task xnli')
  with raises_error(
    errors.CorpusError, where='task xnli', mentions=('yes', 'fr', 1)
  ):
    label_sets.check_labels(examples, ('no', 'maybe'), 'task xnli')


def test_questions_have_no_labels(tmp_path):
  from xlflax.data.supervised import labeled_examples

  with raises_error(errors.ConfigError, got='question_answering'):
    label_sets.check_labels(
      [
        labeled_examples.Question(
          id='0', language='en', question='', context=''
        )
      ],
      (),
      '',
    )


def test_files_are_read_without_tensorflow():
  code = (
    'import sys; from xlflax.data.supervised import xtreme_submission; '
    'from xlflax.data.supervised.sources import example_source, task_source, xtreme; '
    'print({"tensorflow", "seqio"} & '
    'set(sys.modules))'
  )
  result = subprocess.run(
    [sys.executable, '-c', code], check=True, capture_output=True, text=True
  )
  assert result.stdout.strip() == 'set()'


def _touch(directory, *names):
  for name in names:
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text('')


def test_find_files_by_language_pattern(tmp_path):
  _touch(
    tmp_path,
    'sib200/swh_Latn/test.tsv',
    'sib200/zho_Hant/test.tsv',
    'sib200/swh_Latn/train.tsv',
    'sib200/README/notes',
  )
  root = f'{tmp_path}/sib200'
  files = example_source.find_files(str(tmp_path), 'sib200/{language}/test.tsv')
  assert files == {
    'sw': f'{root}/swh_Latn/test.tsv',
    'zh_Hant': f'{root}/zho_Hant/test.tsv',
  }
  assert example_source.find_files(root, '{language}/train.tsv') == {
    'sw': f'{root}/swh_Latn/train.tsv'
  }


def test_find_files_groups_files_by_language(tmp_path):
  _touch(
    tmp_path,
    'UD_French-GSD/fr_gsd-ud-test.conllu',
    'UD_French-Sequoia/fr_sequoia-ud-test.conllu',
    'UD_French-GSD/fr_gsd-ud-dev.conllu',
    'UD_Yoruba-YTB/yo_ytb-ud-test.conllu',
  )
  pattern = 'UD_*/{language}_*-ud-test.conllu'
  assert example_source.find_files(str(tmp_path), pattern) == {
    'fr': (
      f'{tmp_path}/UD_French-GSD/fr_gsd-ud-test.conllu',
      f'{tmp_path}/UD_French-Sequoia/fr_sequoia-ud-test.conllu',
    ),
    'yo': f'{tmp_path}/UD_Yoruba-YTB/yo_ytb-ud-test.conllu',
  }
  with raises_error(
    errors.CorpusError, where=tmp_path, mentions=(pattern, 'sw')
  ):
    example_source.find_files(str(tmp_path), pattern, languages=('fr', 'sw'))
  with raises_error(errors.CorpusError, mentions='{language}'):
    example_source.find_files(str(tmp_path), '{language}')
