"""Tests of the checks of files, settings and languages before training."""

import json
import logging
import types

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import cli
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import during_training
from xlflax.evaluation.tasks import tagging_task
from xlflax.objectives.finetuning import token_classification
from xlflax.training.hooks import evaluation_hook
from xlflax.utils import errors

pytest_plugins = ['tests.finetuning.fixtures']

_UNER = '1\tAda\tB-PER\t-\t-\n2\tsaw\tO\t-\t-\n3\tRome\tB-LOC\t-\t-\n\n'
_CONLL = 'Ada B-PER\nsaw O\nRome B-LOC\n\n'
_CONLLU = (
  '1\tAda\t_\tPROPN\t_\t_\t2\tnsubj\t_\t_\n'
  '2\tsaw\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n'
)


@pytest.fixture
def write(tmp_path):
  def write(name, text):
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)

  return write


@pytest.fixture
def run(pretrained, tmp_path):
  """Function that checks a grid without training, by default for tagging."""

  def run(*options, task='tagging'):
    return cli.parse(
      'finetune',
      [
        f'--gin_file=finetune/{task}.gin',
        f'--init_from={pretrained}',
        f'--output={tmp_path / "out"}',
        '--compilation_cache=',
        '--dry_run',
        '--gin.LENGTH=16',
        *options,
      ],
    )()

  return run


def _tests(**files):
  return [
    '--eval_gin_file=evaluate/tagging.gin',
    f'--eval_gin=TEST_FILES={files!r}',
  ]


def test_test_files_use_the_training_format(run, write, capsys):
  train = f'--gin.TRAIN_FILES={ {"en": write("train", _UNER)}!r}'
  tests = _tests(fr=write('test', _UNER))
  assert run(train, '--gin.FORMAT="uner"', *tests) == 0
  assert capsys.readouterr().out == 'single\n'
  with raises_error(errors.CorpusError, mentions=('test', 'FORMAT', 'uner')):
    run(train, '--gin.FORMAT="uner"', *tests, '--eval_gin=FORMAT="conllu_tags"')


def test_options_apply_to_test_files_of_the_same_format(run, write):
  text = 'B-PER Ada\nO saw\n\n'
  train = f'--gin.TRAIN_FILES={ {"en": write("train", text)}!r}'
  settings = [
    '--gin.FORMAT="conll"',
    "--gin.OPTIONS={'word': 1, 'tag': 0, 'separator': 'space'}",
  ]
  assert run(train, *settings, *_tests(fr=write('test', text))) == 0
  other = _tests(fr=write('other', _UNER))
  assert run(train, *settings, *other, '--eval_gin=FORMAT="uner"') == 0


def test_test_files_use_the_training_label_scheme(run, write):
  train = f'--gin.TRAIN_FILES={ {"en": write("train", _CONLLU)}!r}'
  tests = _tests(fr=write('test', f'# text = Ada saw\n{_CONLLU}'))
  scheme = '--gin.SCHEME="entities"'
  assert run(train, '--gin.SCHEME="tags"', *tests) == 0
  with raises_error(errors.CorpusError, got='PROPN', where='test:2'):
    run(train, scheme, *tests)
  # The scheme has no effect if no test uses it.
  for other in ([], [*tests, '--eval_gin=SCHEME="tags"']):
    with raises_error(errors.ConfigError, got='SCHEME'):
      run(train, scheme, *other)


def test_settings_can_apply_only_to_test_files(run, write):
  train = [
    f'--gin.TRAIN_FILES={ {"en": write("train", _CONLLU)}!r}',
    '--gin.TRAIN_FORMAT="conllu_tags"',
    '--gin.TRAIN_OPTIONS={}',
  ]
  settings = [
    '--gin.FORMAT="conll"',
    "--gin.OPTIONS={'word': 1, 'tag': 0, 'separator': 'space'}",
  ]
  tests = _tests(fr=write('test', 'PROPN Ada\nVERB saw\n\n'))
  assert run(*train, *settings, *tests) == 0


def test_user_gin_file_keeps_its_format(run, write):
  train = f'--gin.TRAIN_FILES={ {"en": write("train", _UNER)}!r}'
  test_gin = write(
    'mine.gin', "include 'evaluate/tagging.gin'\nFORMAT = 'conll'\n"
  )
  files = {'fr': write('test', _CONLL)}
  tests = [f'--eval_gin_file={test_gin}', f'--eval_gin=TEST_FILES={files!r}']
  assert run(train, '--gin.FORMAT="uner"', *tests) == 0


@pytest.mark.parametrize(
  'name, error',
  [('missing', errors.CorpusError), ('malformed', errors.CorpusError)],
)
@pytest.mark.parametrize('kind', ['test', 'dev'])
def test_missing_and_malformed_files_are_rejected(
  run, write, tmp_path, kind, name, error
):
  train = f'--gin.TRAIN_FILES={ {"en": write("train", _CONLLU)}!r}'
  path = str(tmp_path / name)
  if name == 'malformed':
    write(name, 'no columns\n')
  options = (
    _tests(fr=path)
    if kind == 'test'
    else [
      f'--gin.DEV_FILES={ {"en": path}!r}',
      '--metric_for_best_model=tagging/accuracy/en',
    ]
  )
  with raises_error(error, mentions=(name,)):
    run(train, *options)


@pytest.mark.parametrize('kind', ['test', 'dev'])
def test_labels_must_match_the_scheme_of_the_task(run, write, kind):
  train = f'--gin.TRAIN_FILES={ {"en": write("train", _CONLLU)}!r}'
  path = write('other', f'# text = Ada saw\n{_CONLLU}')
  options = (
    [*_tests(en=path), '--eval_gin=SCHEME="entities"']
    if kind == 'test'
    else [
      '--gin.SCHEME="entities"',
      f'--gin.DEV_FILES={ {"en": path}!r}',
      '--metric_for_best_model=tagging/f1/en',
    ]
  )
  with raises_error(
    errors.CorpusError, got='PROPN', where='other:2', mentions='SCHEME'
  ):
    run(train, *options)


@pytest.mark.parametrize('kind', ['test', 'dev'])
def test_tasks_without_a_trained_objective_are_rejected(run, write, kind):
  train = f'--gin.TRAIN_FILES={ {"en": write("train", _CONLL)}!r}'
  pairs = {'en': write('pairs', 'a dog\tthe cat\tyes\nthe cat\ta dog\tno\n')}
  options = (
    [
      '--eval_gin_file=evaluate/classification.gin',
      f'--eval_gin=TEST_FILES={pairs!r}',
    ]
    if kind == 'test'
    else [
      f'--gin.DEV_FILES={ {"en": write("dev", _CONLL)}!r}',
      '--metric_for_best_model=tagging/accuracy/en',
      "--gin.Tagging.objective='tags'",
    ]
  )
  with raises_error(
    errors.ConfigError,
    got='token_classification: TokenClassification',
    mentions='objective',
  ):
    run(train, '--gin.FORMAT="conll"', *options)


@pytest.mark.parametrize('part', ['en', 'mean'])
def test_development_files_without_gold_labels_are_rejected(run, write, part):
  files = {'en': write('train', 'a dog\tthe cat\tyes\nthe cat\ta dog\tno\n')}
  blind = {'en': write('blind', 'a dog\tthe cat\n')}
  with raises_error(errors.CorpusError, where='en', mentions=('gold',)):
    run(
      f'--gin.TRAIN_FILES={files!r}',
      f'--gin.DEV_FILES={blind!r}',
      f'--metric_for_best_model=classification/accuracy/{part}',
      task='classification',
    )


@pytest.mark.parametrize('length, warns', [(16, True), (8, False)])
def test_long_questions_cause_a_warning(run, write, caplog, length, warns):
  answer = {'text': 'dog', 'answer_start': 2}
  question = {'id': 'q', 'question': 'who?', 'answers': [answer]}
  paragraph = {'context': 'a dog sleeps here', 'qas': [question]}
  text = json.dumps({'data': [{'paragraphs': [paragraph]}]})
  with caplog.at_level(logging.WARNING):
    run(
      f'--gin.TRAIN_FILES={ {"en": write("train", text)}!r}',
      f'--gin.MAX_QUESTION_LENGTH={length}',
      '--gin.LENGTH=24',
      task='question_answering',
    )
  assert ('MAX_QUESTION_LENGTH' in caplog.text) is warns


def test_questions_without_answers_are_rejected_as_development_files(
  run, write
):
  def squad(answers):
    question = {'id': 'q', 'question': 'where?', 'answers': answers}
    paragraph = {'context': 'a dog sleeps here', 'qas': [question]}
    return json.dumps({'data': [{'paragraphs': [paragraph]}]})

  answers = [{'text': 'here', 'answer_start': 13}]
  files = {'en': write('train', squad(answers))}
  blind = {'en': write('blind', squad([{'text': '', 'answer_start': 0}]))}
  with raises_error(errors.CorpusError, where='en', mentions=('gold',)):
    run(
      f'--gin.TRAIN_FILES={files!r}',
      f'--gin.DEV_FILES={blind!r}',
      '--gin.LENGTH=16',
      '--gin.DOC_STRIDE=4',
      '--metric_for_best_model=question_answering/f1/en',
      task='question_answering',
    )


def test_test_files_may_lack_gold_labels(run, write, caplog):
  files = {'en': write('train', 'a dog\tthe cat\tyes\nthe cat\ta dog\tno\n')}
  tests = {
    'de': files['en'],
    'fr': write('blind', 'a dog\tthe cat\n'),
    'ru': write('partial', 'a dog\tthe cat\tyes\na dog\tthe cat\t\n'),
  }
  status = run(
    f'--gin.TRAIN_FILES={files!r}',
    '--eval_gin_file=evaluate/classification.gin',
    f'--eval_gin=TEST_FILES={tests!r}',
    task='classification',
  )
  assert status == 0
  (message,) = [
    record.getMessage()
    for record in caplog.records
    if 'gold labels' in record.getMessage()
  ]
  assert 'fr, ru (1 of 2 labeled)' in message and 'de' not in message.split()


_PAIRS = 'a dog\tthe cat\tyes\nthe cat\ta dog\tno\n'


def _warnings(caplog, *names):
  return [
    message
    for message in (record.getMessage() for record in caplog.records)
    if all(name in message for name in names)
  ]


def test_an_unknown_label_of_a_development_file_is_reported(run, write, caplog):
  train = {'en': write('train', _PAIRS)}
  dev = {'en': write('dev', f'{_PAIRS}the cat\tthe dog\tyess\n')}
  assert (
    run(
      f'--gin.TRAIN_FILES={train!r}',
      f'--gin.DEV_FILES={dev!r}',
      '--metric_for_best_model=classification/accuracy/en',
      task='classification',
    )
    == 0
  )
  (message,) = _warnings(caplog, 'yess')
  assert_mentions(message, 'en', 'yess', f'{dev["en"]}:3', 'yes')


def test_the_hint_for_unknown_labels_keeps_the_other_options(run, write):
  train = {'en': write('train', _PAIRS)}
  test = {'fr': write('test', 'a dog\tthe cat\t0\nthe cat\ta dog\t1\n')}
  columns = {'text': 0, 'paired_text': 1, 'label': 2}
  options = {'columns': columns, 'quoting': 'csv'}
  with raises_error(
    errors.CorpusError,
    got='0',
    mentions=f"{str(options)[:-1]}, 'labels': {{'0': 'CLASS'",
  ):
    run(
      f'--gin.TRAIN_FILES={train!r}',
      '--eval_gin_file=evaluate/classification.gin',
      f'--eval_gin=TEST_FILES={test!r}',
      f'--eval_gin=OPTIONS={options!r}',
      task='classification',
    )


def test_unknown_labels_of_a_test_file_are_located(run, write):
  train = {'en': write('train', _PAIRS)}
  test = {'fr': write('test', 'a dog\tthe cat\t0\nthe cat\ta dog\t1\n')}
  with raises_error(
    errors.CorpusError,
    got='0',
    expected='one of no, yes',
    where='test:1',
    mentions=('--gin.OPTIONS', 'DEV_OPTIONS', '--eval_gin', "{'0': 'CLASS'"),
  ):
    run(
      f'--gin.TRAIN_FILES={train!r}',
      '--eval_gin_file=evaluate/classification.gin',
      f'--eval_gin=TEST_FILES={test!r}',
      task='classification',
    )


@pytest.mark.parametrize('kind', ['development', 'test'])
def test_evaluation_on_a_training_file_is_reported(run, write, caplog, kind):
  train = {'en': write('train', _PAIRS), 'de': write('train.de', _PAIRS)}
  other = write('other', _PAIRS)
  dev, test = {'en': other}, {'en': other}
  (dev if kind == 'development' else test)['en'] = train['en']
  assert (
    run(
      f'--gin.TRAIN_FILES={train!r}',
      f'--gin.DEV_FILES={dev!r}',
      '--metric_for_best_model=classification/accuracy/en',
      '--eval_gin_file=evaluate/classification.gin',
      f'--eval_gin=TEST_FILES={test!r}',
      task='classification',
    )
    == 0
  )
  (message,) = _warnings(caplog, 'training file')
  assert_mentions(message, kind, train['en'])


def _numbered_pairs(*numbers):
  return ''.join(
    f'{n} dogs\t{n} cats\t{"yes" if n % 2 else "no"}\n' for n in numbers
  )


@pytest.mark.parametrize(
  'num_reused, num_other, is_reported',
  [(5, 0, True), (4, 0, False), (5, 95, True), (5, 96, False)],
)
@pytest.mark.parametrize('kind', ['development', 'test'])
def test_evaluation_on_training_examples_is_reported(
  run, write, caplog, kind, num_reused, num_other, is_reported
):
  """The labels and the names of the files are not compared."""
  train = {'en': write('train', _numbered_pairs(*range(200)))}
  reused = _numbered_pairs(*range(num_reused))
  reused = reused.replace('no', 'x').replace('yes', 'no').replace('x', 'yes')
  other = _numbered_pairs(*range(1000, 1000 + num_other))
  dev = {'en': write('dev', _numbered_pairs(*range(300, 320)))}
  test = {'en': write('test', _numbered_pairs(*range(400, 420)))}
  path = (dev if kind == 'development' else test)['en']
  write(path, reused + other)
  assert (
    run(
      f'--gin.TRAIN_FILES={train!r}',
      f'--gin.DEV_FILES={dev!r}',
      '--metric_for_best_model=classification/accuracy/en',
      '--eval_gin_file=evaluate/classification.gin',
      f'--eval_gin=TEST_FILES={test!r}',
      task='classification',
    )
    == 0
  )
  messages = _warnings(caplog, 'training examples')
  assert len(messages) == is_reported
  for message in messages:
    assert_mentions(message, kind, path, num_reused, num_reused + num_other)


@pytest.mark.parametrize('is_copy', [False, True])
def test_evaluation_on_the_development_set_is_reported(
  run, write, caplog, is_copy
):
  train = {'en': write('train', _numbered_pairs(*range(200)))}
  text = _numbered_pairs(*range(300, 320))
  dev = {'en': write('dev', text)}
  test = {'en': write('copy', text) if is_copy else dev['en']}
  assert (
    run(
      f'--gin.TRAIN_FILES={train!r}',
      f'--gin.DEV_FILES={dev!r}',
      '--metric_for_best_model=classification/accuracy/en',
      '--eval_gin_file=evaluate/classification.gin',
      f'--eval_gin=TEST_FILES={test!r}',
      task='classification',
    )
    == 0
  )
  [message] = _warnings(caplog, test['en'])
  assert_mentions(message, 'development', 'test')


@pytest.mark.parametrize('is_copy', [False, True])
@pytest.mark.parametrize('kind', ['training', 'development', 'test'])
def test_identical_files_of_two_languages_are_reported(
  run, write, caplog, kind, is_copy
):
  files = {
    name: {'en': write(name, _numbered_pairs(*numbers))}
    for name, numbers in {
      'training': range(200),
      'development': range(300, 320),
      'test': range(400, 420),
    }.items()
  }
  path = files[kind]['en']
  with open(path) as file:
    files[kind]['de'] = write('copy', file.read()) if is_copy else path
  files[kind]['fr'] = write('fr', _numbered_pairs(*range(500, 520)))
  assert (
    run(
      f'--gin.TRAIN_FILES={files["training"]!r}',
      f'--gin.DEV_FILES={files["development"]!r}',
      '--metric_for_best_model=classification/accuracy/en',
      '--eval_gin_file=evaluate/classification.gin',
      f'--eval_gin=TEST_FILES={files["test"]!r}',
      task='classification',
    )
    == 0
  )
  [message] = _warnings(caplog, 'identical')
  assert_mentions(message, 'en', 'de', path, files[kind]['de'], '`files`')
  assert 'fr' not in message.split()


def test_words_are_compared_without_their_labels(run, write, caplog):
  sentences = [f'{n} PROPN\nsaw VERB\n\n' for n in range(10)]
  train = {'en': write('train', ''.join(sentences))}
  test = write('test', ''.join(sentences[:5]).replace('PROPN', 'VERB'))
  assert (
    run(
      f'--gin.TRAIN_FILES={train!r}', '--gin.FORMAT="conll"', *_tests(en=test)
    )
    == 0
  )
  [message] = _warnings(caplog, test)
  assert_mentions(message, 'test', 5)


def test_sequences_that_are_too_long_for_the_model_are_rejected(run, write):
  train = f'--gin.TRAIN_FILES={ {"en": write("train", _CONLLU)}!r}'
  with raises_error(errors.ConfigError, mentions=("'labeled'", 4096)):
    run(train, '--gin.LENGTH=4096')


def test_a_selection_metric_requires_development_files(run, write):
  train = f'--gin.TRAIN_FILES={ {"en": write("train", _CONLLU)}!r}'
  with raises_error(
    errors.ConfigError, mentions=('DEV_FILES', '--metric_for_best_model')
  ):
    run(train, '--metric_for_best_model=tagging/accuracy/en')


@pytest.mark.parametrize('macro', ['DEV_FILES', 'NUM_EVALUATIONS'])
def test_development_files_require_a_selection_metric(run, write, macro):
  path = write('train', _CONLLU)
  options = {'DEV_FILES': {'en': path}, 'NUM_EVALUATIONS': 2}
  with raises_error(
    errors.ConfigError,
    got=macro,
    expected='--metric_for_best_model with tagging/{accuracy,f1,precision,recall}/{en,mean}'
    if macro == 'DEV_FILES'
    else ...,
    where=f'--gin.{macro}',
    mentions='--metric_for_best_model',
  ) as caught:
    run(
      f'--gin.TRAIN_FILES={ {"en": path}!r}',
      f'--gin.{macro}={options[macro]!r}',
    )
  assert 'during_training' not in str(caught.value)


def test_missing_label_column_is_reported(run, write):
  path = write('train', 'a dog\tyes\nthe cat\tno\n')
  with raises_error(errors.CorpusError, mentions=(path, 'OPTIONS', '2')):
    run(f'--gin.TRAIN_FILES={ {"en": path}!r}', task='classification')


@pytest.mark.parametrize(
  'task, macro, rows, given',
  [
    (
      'classification',
      'LABELS',
      'a dog\tthe cat\tyes\nthe cat\ta dog\tno\n',
      ('yes', 'maybe'),
    ),
    ('tagging', 'LABELS', _CONLLU.replace('VERB', 'no'), ('PROPN', 'VERB')),
  ],
)
def test_training_labels_must_be_listed_in_the_settings(
  run, write, task, macro, rows, given
):
  path = write('train', rows)
  with raises_error(
    errors.CorpusError,
    got='no',
    expected=f'one of {", ".join(sorted(given))}',
    where=path,
    mentions=('en', macro),
  ):
    run(
      f'--gin.TRAIN_FILES={ {"en": path}!r}',
      f'--gin.{macro}={given!r}',
      task=task,
    )


@pytest.mark.parametrize('more', ['', 'c d\tmaybe\n'])
def test_classes_without_training_examples_are_reported(
  run, write, caplog, more
):
  path = write('train', f'a b\tyes\nb c\tno\n{more}')
  run(
    f'--gin.TRAIN_FILES={ {"en": path}!r}',
    "--gin.OPTIONS={'columns': {'text': 0, 'label': 1}}",
    "--gin.LABELS=('yes', 'maybe', 'no')",
    task='classification',
  )
  warnings = [text for text in caplog.messages if 'LABELS' in text]
  assert len(warnings) == (not more)
  for warning in warnings:
    assert_mentions(warning, 'maybe', '1 of the 3')


def test_test_labels_of_another_task_are_rejected(run, write):
  train = f'--gin.TRAIN_FILES={ {"en": write("train", _CONLLU)}!r}'
  tests = _tests(fr=write('test', _UNER))
  with raises_error(errors.CorpusError, mentions=('B-PER',)):
    run(train, *tests, '--eval_gin=FORMAT="uner"')


def test_languages_outside_of_the_vocabulary_are_reported(run, write, caplog):
  train = f'--gin.TRAIN_FILES={ {"eng": write("train", _CONLLU)}!r}'
  tests = _tests(de=write('test', _CONLLU), xx=write('other', _CONLLU))
  with caplog.at_level(logging.WARNING):
    assert run(train, *tests) == 0
  messages = [
    record.getMessage()
    for record in caplog.records
    if 'vocabulary' in record.getMessage()
  ]
  assert len(messages) == 2
  assert ' xx,' in messages[0]
  assert ' eng,' in messages[1]


def test_unknown_selection_metric_lists_available_metrics(run, write):
  train = f'--gin.TRAIN_FILES={ {"en": write("train", _UNER)}!r}'
  dev = f'--gin.DEV_FILES={ {"en": write("dev", _UNER)}!r}'
  with raises_error(errors.ConfigError, got='tagging/f2/en') as caught:
    run(
      train, dev, '--gin.FORMAT="uner"', '--metric_for_best_model=tagging/f2/en'
    )
  expected = 'tagging/{accuracy,f1,precision,recall}/{en,mean}'
  assert caught.value.expected == expected
  assert 'tagging/f1/en' in caught.value.fix


def test_training_checks_its_evaluation_files(tmp_path):
  source = example_source.FileDataset(
    format='conllu_tags', files={'en': str(tmp_path / 'missing')}
  )
  evaluation = during_training.Evaluation(
    tasks=[tagging_task.Tagging(source=source)], eval_interval_steps=10
  )
  hook = evaluation_hook.EvaluationHook(evaluation)
  trainer = types.SimpleNamespace(
    evaluation=evaluation,
    objectives=types.SimpleNamespace(
      objectives=[token_classification.TokenClassification(labels=('O', 'B-X'))]
    ),
    checkpoints=types.SimpleNamespace(metric_for_best_model=None),
  )
  run = types.SimpleNamespace(trainer=trainer)
  with raises_error(errors.CorpusError, mentions=('missing',)):
    hook.before_training(run)


@pytest.mark.parametrize(
  'metric, expected', [('accuracy', True), ('f1', False)]
)
def test_selection_by_entity_accuracy_causes_a_warning(
  run, write, caplog, metric, expected
):
  train = f'--gin.TRAIN_FILES={ {"en": write("train", _UNER)}!r}'
  dev = f'--gin.DEV_FILES={ {"en": write("dev", _UNER)}!r}'
  select = f'--metric_for_best_model=tagging/{metric}/en'
  with caplog.at_level(logging.WARNING):
    assert run(train, dev, '--gin.FORMAT="uner"', select) == 0
  assert ('tagging/f1/en' in caplog.text) is expected


def test_a_malformed_test_file_stops_the_command_before_training(
  pretrained, write, tmp_path
):
  files = {'en': write('train', _CONLLU)}
  run = cli.parse(
    'finetune',
    [
      '--gin_file=finetune/tagging.gin',
      f'--init_from={pretrained}',
      f'--output={tmp_path / "out"}',
      '--compilation_cache=',
      '--gin.LENGTH=16',
      f'--gin.TRAIN_FILES={files!r}',
      *_tests(fr=write('test', 'no columns')),
    ],
  )
  with raises_error(errors.CorpusError, mentions=('test',)):
    run()
  assert not (tmp_path / 'out').exists()
