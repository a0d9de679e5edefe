import json

import jax
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import cli, trainer
from xlflax import evaluate as evaluate_lib
from xlflax.cli import evaluate
from xlflax.config import gin_config
from xlflax.evaluation import eval_task, text_sources
from xlflax.objectives.model_calls import Pooling
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


@pytest.fixture
def one_device(monkeypatch):
  """Uses one device, because eight only cost time here."""
  monkeypatch.setattr(jax, 'device_count', lambda: 1)


def _parse(*flags):
  main = cli.parse('evaluate', ['--model_dir=run', *flags])
  return main.args[0]


def _tasks(*flags):
  options = _parse(*flags)
  return evaluate.build_tasks(options, evaluate.configure(options))


@pytest.mark.parametrize(
  'text, expected',
  [('all', 'all'), ('100', [100]), ('100,20', [100, 20]), ('1,x', '1,x')],
)
def test_parse_checkpoint_steps(text, expected):
  assert evaluate.parse_checkpoint_steps(text) == expected


def test_training_macros_are_not_required():
  """The suite file configures training and testing, but the command only tests."""
  args = _parse('--gin_file=suites/xtreme/xnli.gin', "--gin.DATA='download'")
  with pytest.raises(errors.CorpusError, match='Got: download'):
    evaluate.configure(args).parameter('evaluate.evaluate.tasks')


def test_missing_macro_of_a_task_is_reported(tmp_path, capsys):
  arguments = ['--gin_file=suites/xtreme/xnli.gin']
  assert cli.main(['evaluate', f'--model_dir={tmp_path}', *arguments]) == 2
  assert (
    'a value for DATA. What to do: Pass --gin.DATA' in capsys.readouterr().err
  )


def test_tasks_are_selected_by_name():
  tasks = _tasks(
    '--tasks=retrieval,tatoeba,perplexity,translation_perplexity',
    '--corpus=c',
    '--tatoeba=t',
    '--split=validation',
    '--languages=de,sw',
  )
  assert [task.name for task in tasks] == [
    'retrieval',
    'tatoeba',
    'perplexity',
    'translation_perplexity',
  ]
  assert [task.source.directory for task in tasks] == ['c', 't', 'c', 'c']
  assert tasks[0].source.split == 'validation'
  assert all(task.source.languages == ('de', 'sw') for task in tasks)


def test_gin_bindings_configure_selected_tasks():
  (task,) = _tasks(
    '--tasks=retrieval',
    '--corpus=c',
    "--gin.retrieval_task.Retrieval.pooling='first'",
    '--gin.retrieval_task.Retrieval.layer=1',
  )
  assert (task.pooling, task.layer) == (Pooling.FIRST, 1)


def test_task_can_be_renamed(caplog):
  flags = ['--tasks=retrieval', '--corpus=c']
  (task,) = _tasks(*flags, "--gin.retrieval_task.Retrieval.name='news'")
  assert (task.name, caplog.records) == ('news', [])


@pytest.mark.parametrize(
  'flags, text',
  [
    (
      ['--tasks=bleu'],
      'Got: bleu. Expected: one of .*perplexity, .*retrieval, .*tatoeba',
    ),
    (['--tasks=tatoeba', '--corpus=c'], '--tatoeba=DIR'),
    (
      [
        '--tasks=perplexity',
        '--corpus=c',
        '--gin.perplexity.Perplexity.drws=1',
      ],
      'drws',
    ),
  ],
)
def test_invalid_flags_are_rejected(flags, text):
  with pytest.raises(errors.ConfigError, match=text):
    _tasks(*flags)


@pytest.mark.parametrize(
  'name, flags, tasks',
  [
    ('corpus', ['--corpus=c'], ['retrieval', 'perplexity']),
    ('tatoeba', ['--tatoeba=t'], ['tatoeba']),
  ],
)
def test_shipped_gin_files_build_their_tasks(monkeypatch, name, flags, tasks):
  results = {}
  args = _parse(f'--gin_file=evaluate/{name}.gin', *flags)
  monkeypatch.setattr(
    evaluate_lib,
    'check_tasks',
    lambda given: results.update(tasks=given) or 1 / 0,
  )
  with pytest.raises(ZeroDivisionError):
    evaluate.configure(args).build(evaluate_lib.evaluate, model_dir='run')
  assert [task.name for task in results['tasks']] == tasks
  assert all(isinstance(task, eval_task.EvalTask) for task in results['tasks'])
  assert results['tasks'][0].source.directory == flags[0][-1]


def test_during_training_gin_file_builds_an_evaluation():
  configuration = gin_config.load_gin_files(
    ['pretrain/mlm.gin', 'models/tiny.gin', 'evaluate/during_training.gin'],
    [
      'EVAL_STEPS=7',
      "CORPUS='c'",
      "MODEL_DIR='m'",
      "VOCABULARY='v'",
      'TRAIN_STEPS=2000',
    ],
  )
  evaluation = configuration.build(trainer.Trainer).evaluation
  assert evaluation.eval_interval_steps == 7
  assert [task.name for task in evaluation.tasks] == ['retrieval', 'perplexity']
  assert evaluation.tasks[0].source.split == 'validation'


def _check_json(run, corpus, capsys):
  """Checks that --json prints an object per stored metric."""
  command = ['evaluate', f'--model_dir={run}', '--tasks=retrieval', '--json']
  assert cli.main([*command, f'--corpus={corpus}', '--languages=de,en']) == 0
  records = [json.loads(x) for x in capsys.readouterr().out.splitlines()]
  (mean,) = (
    record
    for record in records
    if (record['metric'], record['part']) == ('accuracy', 'mean')
  )
  value = mean.pop('value')
  assert 0 <= value <= 1
  assert mean == {
    'task': 'retrieval',
    'split': 'test',
    'step': 10,
    'metric': 'accuracy',
    'part': 'mean',
    'unit': 'fraction',
    'better': 'higher',
    'n': None,
    'low': mean['low'],
    'high': mean['high'],
  }
  assert any(record['n'] for record in records)
  accuracies = [record for record in records if record['metric'] == 'accuracy']
  for record in accuracies:
    record.setdefault('value', value)
    assert record['low'] <= record['value'] <= record['high']
  # Metrics that are not averages over examples have no confidence interval.
  assert any(record['low'] is None for record in records)


def test_command_writes_results_and_prints_tables(
  make_run, corpus, tmp_path, capsys, one_device
):
  run = make_run(tmp_path / 'run', [10])
  status = cli.main(
    [
      'evaluate',
      f'--model_dir={run}',
      '--tasks=retrieval,perplexity',
      f'--corpus={corpus}',
      '--languages=de,en',
      '--random_init_baseline',
      '--batch_size=8',
      '--gin.perplexity.Perplexity.length=16',
    ]
  )
  printed = capsys.readouterr().out
  assert status == 0
  assert 'retrieval: accuracy' in printed
  _check_json(run, corpus, capsys)
  assert 'untrained' in printed
  for task in ('retrieval', 'perplexity'):
    for step in ('untrained', 10):
      (file,) = run.glob(f'eval/{task}/test-*/{step}.json')
      record = json.loads(file.read_text())
      assert record['failures'] == []


def test_failure_is_reported_and_sets_the_exit_status(
  make_run, tmp_path, capsys, one_device
):
  run = make_run(tmp_path / 'run', [10])
  for name, text in (('deu', 'a\nb\n'), ('eng', 'a\n')):
    (tmp_path / f'tatoeba.deu-eng.{name}').write_text(text)
  status = cli.main(
    [
      'evaluate',
      f'--model_dir={run}',
      '--tasks=tatoeba',
      f'--tatoeba={tmp_path}',
    ]
  )
  assert status == 2
  assert 'failed: tatoeba: de at step 10: Line-aligned files' in (
    capsys.readouterr().err
  )


def test_missing_run_exits_with_one_message_and_status_2(tmp_path, capsys):
  missing = tmp_path / 'missing'
  flags = ['--tasks=perplexity', '--corpus=none']
  assert cli.main(['evaluate', f'--model_dir={missing}', *flags]) == 2
  printed = capsys.readouterr().err
  assert 'Traceback' not in printed and '--model_dir' in printed


def test_flag_that_no_task_reads_is_rejected(tmp_path, capsys):
  flags = [f'--model_dir={tmp_path}', f'--corpus={tmp_path}']
  assert cli.main(['evaluate', *flags]) == 2
  printed = capsys.readouterr().err
  assert 'Traceback' not in printed and 'Remove --corpus' in printed
  assert 'Expected' not in printed  # The configuration has no macros.


def test_help_has_an_example(capsys):
  assert cli.main(['evaluate', '--help']) == 0
  assert '--tasks=tatoeba --tatoeba=' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('flags', 'without'),
  [
    (['--tasks=ranking', '--corpus=c', '--max_examples=3'], 'max_examples'),
    (
      ['--tasks=bitext_mining', '--mixture=m', '--max_examples=3'],
      'max_examples',
    ),
    (['--tasks=tatoeba', '--tatoeba=t', '--split=test'], 'split'),
    (['--tasks=tatoeba', '--tatoeba=t', '--corpus=c'], 'corpus'),
    (['--tasks=retrieval', '--corpus=c', '--tatoeba=t'], 'tatoeba'),
  ],
)
def test_text_flags_that_no_task_reads_are_rejected(flags, without):
  with pytest.raises(errors.ConfigError, match=f'--{without} has no effect'):
    _tasks(*flags)


def test_text_flags_may_apply_to_some_of_the_tasks():
  flags = ('--corpus=c', '--tatoeba=t', '--max_examples=3', '--split=test')
  retrieval, tatoeba = _tasks('--tasks=retrieval,tatoeba', *flags)
  assert retrieval.source.max_pairs == tatoeba.source.max_pairs == 3
  assert tatoeba.source.directory == 't'


_LIMITS = ('max_examples', 'max_lines', 'max_pairs')
_FILES = "--gin.TEST_FILES={'fr-en': ('a', 'b')}"


@pytest.mark.parametrize(
  ('name', 'flags'),
  [
    ('classification', [_FILES]),
    ('clustering', [_FILES]),
    ('corpus', ['--corpus=c']),
    ('glot500', ['--tatoeba=t']),
    (
      'intents_and_slots',
      [_FILES, "--gin.SLOT_TEST_FILES={'fr-en': ('a', 'b')}"],
    ),
    ('likelihood_choice', [_FILES]),
    ('multiple_choice', [_FILES]),
    ('pair_classification', [_FILES]),
    ('parsing', [_FILES]),
    ('probe', [_FILES, "--gin.TRAIN_FILES={'fr': 'a'}"]),
    ('pseudo_perplexity', ["--gin.TEST_FILES={'fr': 'a'}"]),
    ('question_answering', [_FILES]),
    ('regression', [_FILES]),
    ('round_trip', ["--gin.TEST_FILES={'fr': 'a', 'de': 'b', 'en': 'c'}"]),
    ('semantic_similarity', [_FILES]),
    ('similarity_search', [_FILES]),
    ('tagging', [_FILES]),
    ('tatoeba', ['--tatoeba=t']),
    ('translation', ['--corpus=c']),
    ('word_alignment', [_FILES]),
  ],
)
def test_max_examples_applies_to_shipped_gin_files(monkeypatch, name, flags):
  results = {}
  args = _parse(f'--gin_file=evaluate/{name}.gin', '--max_examples=3', *flags)
  monkeypatch.setattr(
    evaluate_lib,
    'check_tasks',
    lambda given: results.update(tasks=given) or 1 / 0,
  )
  with pytest.raises(ZeroDivisionError):
    evaluate.configure(args).build(evaluate_lib.evaluate, model_dir='run')
  for task in results['tasks']:
    limits = [getattr(task.source, limit, None) for limit in _LIMITS]
    assert [limit for limit in limits if limit is not None] == [3]


@pytest.mark.parametrize(
  ('name', 'flag'), [('mining', _FILES), ('reranking', '--corpus=c')]
)
def test_max_examples_is_rejected_if_tasks_read_all_examples(name, flag):
  args = _parse(f'--gin_file=evaluate/{name}.gin', '--max_examples=3', flag)
  with raises_error(errors.ConfigError, got=3, where='--max_examples'):
    evaluate.configure(args)


@pytest.mark.parametrize('flags', [(), ('--max_examples=3',)])
def test_gin_file_may_use_max_examples_without_defining_it(tmp_path, flags):
  file = tmp_path / 'own.gin'
  file.write_text(
    'from __gin__ import dynamic_registration\n'
    'from xlflax.evaluation import text_sources\n'
    "text_sources.FileText.files = {'fr': 'a'}\n"
    'text_sources.FileText.max_lines = %MAX_EXAMPLES\n',
    'utf-8',
  )
  configuration = evaluate.configure(_parse(f'--gin_file={file}', *flags))
  source = configuration.build(text_sources.FileText)
  assert source.max_lines == (3 if flags else None)


def test_paths_of_predictions_are_logged(tmp_path, caplog):
  files_by_step = {
    'one_file': {10: ['fr.tsv']},
    'two_files': {10: ['fr.tsv', 'fr.examples', 'sw.tsv']},
    'two_steps': {10: ['fr.tsv'], 20: ['fr.tsv']},
    'only_statistics': {10: ['fr.examples']},
    'no_files': {10: []},
  }
  for task, files in files_by_step.items():
    for step, names in files.items():
      folder = tmp_path / task / str(step)
      for name in names:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('yes\n')
  report = evaluate_lib.Report(
    tasks=(),
    results={
      task: dict.fromkeys(files, eval_task.EvalResult(metrics={}))
      for task, files in files_by_step.items()
    },
    failures=(),
    computed=0,
    folders={task: tmp_path / task for task in files_by_step},
  )
  with caplog.at_level('INFO'):
    evaluate.log_predictions(report)
  one_file, two_files, two_steps = caplog.messages
  assert_mentions(one_file, 'one_file', str(tmp_path / 'one_file/10/fr.tsv'))
  assert_mentions(two_files, 'two_files', str(tmp_path / 'two_files/10') + '.')
  assert_mentions(two_steps, 'two_steps', str(tmp_path / 'two_steps/<step>'))


_SUITE = ('--suite=glue', '--data=d', '--output=o')


@pytest.mark.parametrize(
  ('flags', 'field', 'value'),
  [
    (['--suite=glue', '--data=d'], 'fix', 'Pass --output=DIR.'),
    (['--suite=glue', '--output=o'], 'fix', 'Pass --data=DIR.'),
    ([*_SUITE, '--tasks=retrieval'], 'got', 'retrieval'),
    ([*_SUITE, '--checkpoint_steps=all'], 'got', 'all'),
    ([*_SUITE, '--recipe=none'], 'got', 'none'),
    (['--suite=none', '--data=d', '--output=o'], 'got', 'none'),
    ([*_SUITE, '--continuous', '--checkpoint_steps=best'], 'got', 'best'),
    (['--model_dir=other', '--tasks=retrieval'], 'got', 'run, other'),
    (['--tasks=retrieval', '--checkpoint_steps=1,x'], 'got', '1,x'),
  ],
)
def test_invalid_suites_and_models_are_rejected(flags, field, value):
  flags = ['--model_dir=run', '--compilation_cache=', *flags]
  with pytest.raises(errors.ConfigError) as raised:
    cli.parse('evaluate', flags)()
  assert getattr(raised.value, field) == value


@pytest.mark.parametrize(
  'binding, option',
  [
    ("INIT_FROM='other'", '--model_dir'),
    ('INIT_STEP=5', '--checkpoint_steps'),
    ("DATA='other'", '--data=d'),
    ("MODEL_DIR='other'", '--output'),
    ("DATA='d'", None),
    ('LEARNING_RATE=0.1', None),
  ],
)
def test_binding_that_conflicts_with_an_option_of_a_suite_causes_a_warning(
  caplog, binding, option
):
  flags = ['--model_dir=run', '--compilation_cache=', '--recipe=xtreme']
  with pytest.raises(errors.ConfigError):  # The recipe is not that of GLUE.
    cli.parse('evaluate', [*_SUITE, *flags, f'--gin.{binding}'])()
  messages = [
    record.getMessage()
    for record in caplog.records
    if record.levelname == 'WARNING'
  ]
  assert len(messages) == (option is not None)
  if option is not None:
    assert_mentions(messages[0], f'--gin.{binding}', option)


def test_max_examples_overrides_a_binding_with_a_warning(caplog):
  flags = ['--gin_file=evaluate/tagging.gin', '--max_examples=3']
  binding = '--gin.MAX_EXAMPLES=5'
  test_files = "--gin.TEST_FILES={'fr': 'f'}"
  configuration = evaluate.configure(_parse(*flags, binding, test_files))
  assert configuration.macro('MAX_EXAMPLES') == 3
  (message,) = caplog.messages
  assert_mentions(message, binding, '--max_examples')


@pytest.mark.parametrize(
  'flags',
  [
    ['--gin_file=f', '--mixture=m'],
    ['--gin_file=f', '--split=test'],
    ['--gin_file=f', '--languages=de'],
    ['--max_examples=3'],
    ['--tasks=a', '--poll_interval=3'],
    ['--tasks=a', '--timeout=3'],
    ['--tasks=a', '--metric_for_best_model=m'],
    ['--tasks=a', '--data=d'],
    ['--tasks=a', '--recipe=xtreme'],
    ['--tasks=a', '--baseline=m'],
    ['--tasks=a', '--shard_index=0', '--num_shards=2'],
    [*_SUITE, '--corpus=c'],
    [*_SUITE, '--mixture=m'],
    [*_SUITE, '--tatoeba=t'],
    [*_SUITE, '--split=test'],
    [*_SUITE, '--languages=de'],
    [*_SUITE, '--max_examples=3'],
    [*_SUITE, '--seed=1'],
    [*_SUITE, '--random_init_baseline'],
    [*_SUITE, '--metric_for_best_model=m'],
    [*_SUITE, '--json'],
    [*_SUITE, '--poll_interval=3'],
    [*_SUITE, '--continuous', '--shard_index=0', '--num_shards=2'],
  ],
)
def test_options_without_effect_are_rejected(flags):
  with pytest.raises(errors.ConfigError):
    cli.parse('evaluate', ['--model_dir=run', *flags])


_OWN_TASK = """
import dataclasses
from xlflax.evaluation import eval_task, text_sources
from xlflax.evaluation.metrics.metric import ACCURACY

@dataclasses.dataclass(frozen=True, kw_only=True)
class {name}(eval_task.EvalTask):
  METRICS = (ACCURACY,)
  name: str = '{name}'
  source: text_sources.TextSource
  shift: int = 0
"""


_OWN_SOURCE = """
import dataclasses
from xlflax.evaluation import eval_task
from xlflax.evaluation.metrics.metric import ACCURACY

@dataclasses.dataclass(frozen=True, kw_only=True)
class Words:
  folder: str
  most: int = 3

  @classmethod
  def from_options(cls, {parameters}):
    return cls(folder=corpus)

@dataclasses.dataclass(frozen=True, kw_only=True)
class {name}(eval_task.EvalTask):
  METRICS = (ACCURACY,)
  name: str = '{name}'
  source: Words
"""


@pytest.mark.parametrize(
  'parameters, unknown',
  [
    ('corpus: str, max_examples: int = 3', None),
    ('words: str', 'words'),
    ('corpus: str, encoding: str = "utf-8"', 'encoding'),
  ],
)
def test_parameters_of_a_custom_source_must_be_options(
  tmp_path, monkeypatch, parameters, unknown
):
  name = f'Source{unknown}'
  text = _OWN_SOURCE.format(parameters=parameters, name=name)
  (tmp_path / f'{name.lower()}.py').write_text(text)
  monkeypatch.chdir(tmp_path)
  flags = [f'--tasks={name}', f'--task_module={name.lower()}.py', '--corpus=c']
  if unknown is None:
    (task,) = _tasks(*flags)
    assert task.source.folder == 'c'
    return
  with raises_error(
    errors.ConfigError,
    got=unknown,
    mentions=('Words.from_options', f'{name.lower()}.py:11', 'max_examples'),
  ):
    _tasks(*flags)


def test_custom_source_without_options_is_set_by_gin(tmp_path, monkeypatch):
  text = _OWN_SOURCE.format(parameters='corpus', name='GinSource')
  text = text.replace('from_options', 'create')
  (tmp_path / 'gin_source.py').write_text(text)
  monkeypatch.chdir(tmp_path)
  flags = ['--tasks=GinSource', '--task_module=gin_source.py']
  with raises_error(errors.ConfigError, mentions='source') as caught:
    _tasks(*flags)
  assert '--gin.gin_source.GinSource.source=' in caught.value.fix
  (task,) = _tasks(
    *flags,
    '--gin.gin_source.GinSource.source=@gin_source.Words()',
    "--gin.gin_source.Words.folder='c'",
  )
  assert task.source.folder == 'c'


@pytest.mark.parametrize('folder', ['', 'own_tasks/'])
def test_flags_configure_tasks_of_custom_modules(tmp_path, monkeypatch, folder):
  stem = 'flag_probe' + ('_inner' if folder else '')
  path = tmp_path / f'{folder}{stem}.py'
  path.parent.mkdir(exist_ok=True)
  path.write_text(_OWN_TASK.format(name=stem.title()))
  monkeypatch.chdir(tmp_path)
  flags = [f'--tasks={stem.title()}', f'--task_module={folder}{stem}.py']
  binding = f'--gin.{stem}.{stem.title()}.shift'
  (task,) = _tasks(*flags, '--corpus=c', f'{binding}=2')
  assert task.shift == 2
  with raises_error(errors.ConfigError, got='shft', fix='Did you mean shift?'):
    _tasks(*flags, '--corpus=c', f'--gin.{stem}.{stem.title()}.shft=2')


def test_gin_file_registers_tasks_of_imported_modules(
  tmp_path, monkeypatch, capsys
):
  (tmp_path / 'gin_probe.py').write_text(_OWN_TASK.format(name='GinProbe'))
  (tmp_path / 'own.gin').write_text(
    'from __gin__ import dynamic_registration\n'
    'import gin_probe\n'
    'gin_probe.GinProbe.shift = 3\n'
  )
  monkeypatch.chdir(tmp_path)
  flags = ['--tasks=GinProbe', '--gin_file=own.gin']
  assert cli.main(['evaluate', '--model_dir=.', '--corpus=c', *flags]) == 2
  assert_mentions(capsys.readouterr().err, '--corpus')
  (task,) = _tasks(*flags, '--corpus=c')
  assert task.shift == 3


def test_task_module_may_use_the_tasks_of_the_corpus(
  tmp_path, monkeypatch, capsys
):
  """The evaluation itself may read the corpus without SeqIO."""
  (tmp_path / 'corpus/mono').mkdir(parents=True)
  (tmp_path / 'corpus/mono/zu.txt').write_text('okukodwa\n')
  (tmp_path / 'cli_probe.py').write_text(
    'import dataclasses\n'
    'from xlflax.data.seqio_tasks import task_registry\n'
    'from xlflax.evaluation import eval_task, text_sources\n'
    'from xlflax.evaluation.metrics.metric import ACCURACY\n'
    "task_registry.add_mixture('probed', ['corpus.mono.zu'])\n"
    '@dataclasses.dataclass(frozen=True, kw_only=True)\n'
    'class Probe(eval_task.EvalTask):\n'
    '  METRICS = (ACCURACY,)\n'
    "  name: str = 'cli_probe'\n"
    '  source: text_sources.TextSource\n'
  )
  monkeypatch.chdir(tmp_path)
  flags = ['--tasks=cli_probe', '--task_module=cli_probe.py']
  assert cli.main(['evaluate', '--model_dir=.', *flags]) == 2
  assert 'cli_probe.py:5' in capsys.readouterr().err
  (task,) = _tasks(*flags, '--corpus=corpus', '--split=train')
  assert task.source.languages_found() == ('zu',)
