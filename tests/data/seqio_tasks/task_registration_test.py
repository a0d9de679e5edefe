"""Tests of modules that register tasks."""

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.seqio_tasks import seqio_examples, task_registration
from xlflax.utils import errors, user_modules


def test_task_modules_are_imported_from_the_working_directory(
  registry, tmp_path, monkeypatch
):
  (tmp_path / 'my_toy_tasks.py').write_text(
    'from xlflax.data.seqio_tasks import task_registry as task_registry\n'
    "task_registry.set_task_languages('t13', ['fi'])\n"
  )
  (tmp_path / 'my_broken_tasks.py').write_text('import no_such_library\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(tmp_path))
  task_registration.import_task_modules(['my_toy_tasks'])
  assert registry.registered_languages('t13') == ('fi',)
  with raises_error(errors.ConfigError, mentions='no_such_library'):
    task_registration.import_task_modules(['my_broken_tasks'])
  with raises_error(
    errors.ConfigError, got='my_missing_tasks', where='--task_module'
  ):
    task_registration.import_task_modules(['my_missing_tasks'])


@pytest.mark.parametrize(
  'options, expected',
  [
    ({'mixture': 'corpus.mono.en'}, set()),
    ({'mixture': 'fineweb2.no_such_language'}, {'wmt', 'web_corpora'}),
    (
      {'mixture': 'corpus.mono.en', 'task_modules': ['my_tasks']},
      {'wmt', 'web_corpora'},
    ),
    ({}, {'wmt', 'web_corpora'}),
  ],
)
def test_public_tasks_are_registered_only_if_needed(
  tmp_path, monkeypatch, options, expected
):
  (tmp_path / 'corpus/mono').mkdir(parents=True)
  (tmp_path / 'corpus/mono/en.txt').write_text('one\n')
  (tmp_path / 'my_tasks.py').write_text('')
  monkeypatch.chdir(tmp_path)
  modules, imported = [], task_registration.importlib.import_module
  monkeypatch.setattr(
    task_registration.importlib,
    'import_module',
    lambda name, *args: modules.append(name) or imported(name, *args),
  )
  task_registration.register_tasks('corpus', **options)
  assert {
    name for name in ('wmt', 'web_corpora') if f'xlflax.tasks.{name}' in modules
  } == expected


@pytest.mark.parametrize(
  'where, hint',
  [
    ('--task_module', user_modules.CORPUS_HINT),
    ('my.gin:3', user_modules.TASK_MODULE_HINT),
  ],
)
@pytest.mark.parametrize(
  'line, error_class',
  [
    ("task_registry.add_mixture('m', ['corpus.mono.zz'])", errors.CorpusError),
    ("task_registry.get_task('corpus.mono.zz')", errors.CorpusError),
    ("seqio.get_mixture_or_task('corpus.mono.zz')", errors.ConfigError),
    (
      "seqio.MixtureRegistry.add('m', [('corpus.mono.zz', 1.0)])",
      errors.ConfigError,
    ),
  ],
)
def test_module_that_uses_a_missing_corpus_gets_a_hint(
  registry, tmp_path, monkeypatch, line, error_class, where, hint
):
  del registry
  seqio = pytest.importorskip('seqio')
  # Other tests may have registered the tasks of a corpus.
  for registered in (seqio.TaskRegistry, seqio.MixtureRegistry):
    entries = registered._REGISTRY.items()
    other_tasks = {k: v for k, v in entries if not k.startswith('corpus.')}
    monkeypatch.setattr(registered, '_REGISTRY', other_tasks)
  module = tmp_path / 'my_corpus_tasks.py'
  module.write_text(
    f'import seqio\nfrom xlflax.data.seqio_tasks import task_registry\n{line}\n'
  )
  monkeypatch.chdir(tmp_path)
  with raises_error(
    error_class,
    mentions=('corpus.mono.zz', 'my_corpus_tasks.py:3', where),
    fix=hint,
  ):
    user_modules.import_modules(['my_corpus_tasks.py'], where=where)


def test_hints_contain_only_the_missing_options():
  assert '--task_module' not in user_modules.CORPUS_HINT
  assert '--corpus=DIR' in user_modules.CORPUS_HINT
  assert '--task_module=MODULE' in user_modules.TASK_MODULE_HINT


def test_code_of_task_modules_is_part_of_the_fingerprint(
  registry, tmp_path, monkeypatch
):
  monkeypatch.setattr(registry, '_module_tasks', {})
  monkeypatch.setattr(registry, '_task_modules', {})
  (tmp_path / 'my_hashed_tasks.py').write_text(
    "import seqio\nseqio.TaskRegistry.add('my_hashed', "
    'seqio.FunctionDataSource(\n'
    "  lambda split, shuffle_files: None, ['train']),\n"
    '  preprocessors=[], output_features={})\n'
  )
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(tmp_path))
  task_registration.import_task_modules(['my_hashed_tasks.py'])
  fingerprint = seqio_examples.task_fingerprint('my_hashed', 'train')
  assert fingerprint['code'].keys() == {'my_hashed_tasks'}
  assert 'code' not in seqio_examples.task_identity('my_hashed', 'train')


def test_unregistered_task_error_names_the_modules(
  registry, tmp_path, monkeypatch
):
  monkeypatch.setattr(registry, '_module_tasks', {})
  for file, text in (
    (
      'my_news_tasks.py',
      "seqio.TaskRegistry.add('my_news', seqio.FunctionDataSource(\n"
      "  lambda split, shuffle_files: None, ['train']),\n"
      '  preprocessors=[], output_features={})\n',
    ),
    ('my_empty_tasks.py', ''),
  ):
    (tmp_path / file).write_text(f'import seqio\n{text}')
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(tmp_path))
  for _ in range(2):  # The second call does not import the modules again.
    task_registration.import_task_modules(
      ['my_news_tasks', 'my_empty_tasks.py']
    )
  files = [tmp_path / x for x in ('my_news_tasks.py', 'my_empty_tasks.py')]
  for name, expected in (('missing_news', None), ('my_newz', 'my_news')):
    with raises_error(errors.CorpusError, got=name, expected=expected) as error:
      registry.task_names(name)
    assert_mentions(error.value.fix, *files, 'my_news')
    assert '--task_module' not in error.value.fix
