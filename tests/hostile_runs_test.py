"""Model directories with valid files and impossible values."""

import copy
import itertools
import json
import time

import pytest

import xlflax
from tests.interop.huggingface import handmade
from xlflax.evaluation import result_store, sentence_embedding
from xlflax.evaluation.reports import cells, run_pages
from xlflax.interop.huggingface import huggingface_import
from xlflax.storage import checksums
from xlflax.utils import errors

_VALUES = (
  None,
  True,
  -1,
  10**25,
  float('nan'),
  'x',
  '../../x',
  [],
  {},
  [['a']],
)
_DEEP = ('[' * 100_000, '{"a":' * 50_000, '{"x": ' + '9' * 5000 + '}')


@pytest.fixture(scope='module')
def run_template(tmp_path_factory):
  root = tmp_path_factory.mktemp('run_template')
  (root / 'hf').mkdir()
  handmade.write_folder(root / 'hf')
  run_template = huggingface_import.convert_import(
    huggingface_import.check_import(root / 'hf'), root / 'run'
  )
  encoding = sentence_embedding.SentenceEmbedding(prompts={'query': 'ask: '})
  sentence_embedding.write_sentence_encoding(run_template, encoding)
  return run_template


@pytest.fixture
def run(run_template):
  """Run directory; files that a test changes are restored."""
  original_files = {
    path: path.read_bytes()
    for path in run_template.rglob('*')
    if path.is_file()
  }
  yield run_template
  for path in run_template.rglob('*'):
    if path.is_file() and path not in original_files:
      path.unlink()
  for path, content in original_files.items():
    path.write_bytes(content)


def _positions(value, position=()):
  yield position
  if isinstance(value, dict):
    for key in value:
      yield from _positions(value[key], (*position, key))
  elif isinstance(value, list) and value:
    yield from _positions(value[0], (*position, 0))


def _put(value, position, new):
  if not position:
    return new
  value = folder = copy.deepcopy(value)
  for key in position[:-1]:
    folder = folder[key]
  folder[position[-1]] = new
  return value


def _changed(path, step):
  """Yields file texts with a value at every `step`-th position."""
  before = json.loads(path.read_text())
  has_digest = before.pop(checksums.OWN, None) is not None
  for position, value in list(itertools.product(_positions(before), _VALUES))[
    ::step
  ]:
    new = _put(before, position, value)
    if has_digest and isinstance(new, dict):
      new = checksums.add_digest(new)
    yield json.dumps(new)
  yield from _DEEP


@pytest.mark.parametrize(
  ('name', 'step'),
  [
    ('model.json', 7),
    ('objectives.json', 1),
    ('huggingface.json', 17),
    pytest.param('sentence.json', 3, marks=pytest.mark.slow),
    ('finished.json', 1),
    ('vocabulary/vocabulary.json', 17),
    ('checkpoints/0/params/digests.json', 3),
  ],
)
def test_invalid_values_are_read_or_rejected(run, name, step):
  """Each value is either read or rejected with one error."""
  num_rejected = num_tried = 0
  for text in _changed(run / name, step):
    (run / name).write_text(text)
    num_tried += 1
    try:
      opened = xlflax.load_run(run)
      opened.is_finished()
      _ = opened.sentence if name == 'sentence.json' else None
      if name == 'huggingface.json':
        huggingface_import.head_style(run)
      if name.startswith('checkpoints'):
        opened.restore_params(0)
      run_pages.read_run(run, name='x')
    except errors.XlflaxError as error:
      num_rejected += 1
      assert len(str(error)) < 20_000
  assert num_tried > 3
  assert num_rejected or name == 'finished.json'


@pytest.mark.parametrize(
  'field',
  [
    'num_layers',
    'vocab_size',
    'hidden_dim',
    'mlp_dim',
    'max_position_embeddings',
  ],
)
@pytest.mark.parametrize('scan', [True, False])
def test_sizes_larger_than_the_checkpoint_are_rejected(run, field, scan):
  described = json.loads((run / 'model.json').read_text())
  del described[checksums.OWN]
  described['fields']['config']['fields'] |= {
    field: 10**9 if field != 'vocab_size' else 10**9 + 2,
    'scan_layers': scan,
  }
  text = json.dumps(checksums.add_digest(described))
  (run / 'model.json').write_text(text)
  start = time.monotonic()
  with pytest.raises(errors.XlflaxError, match=f'{field}.*100000000'):
    opened = xlflax.load_run(run)
    for read in (lambda: opened.restore_params(0), opened.untrained_params):
      with pytest.raises(errors.CheckpointError, match=f'{field}=100000000'):
        read()
    opened.restore_params(0)
  assert time.monotonic() - start < 20


def test_invalid_results_are_skipped(run):
  folder = run / 'eval' / 'task' / 'test-0123'
  folder.mkdir(parents=True)
  valid_result = {
    'step': 7,
    'settings_hash': 'x',
    'metrics': {'a/mean': 1.0, 'a/de': None},
    'tables': {'t': [{'a': 1}]},
    'notes': ['n'],
    'failures': [{'task': 't', 'part': 'p', 'message': 'm'}],
  }
  file = folder / '7.json'
  file.write_text(json.dumps(checksums.add_digest(valid_result)))
  assert result_store.read_result(file).metrics['a/mean'] == 1
  for text in _changed(file, 1):
    file.write_text(text)
    for by_step in result_store.find_results(run).values():
      for result in by_step.values():
        assert all(type(v) in (int, float) for v in result.metrics.values())


@pytest.mark.parametrize(
  ('target', 'address'),
  [
    ('https://a/b', 'https://a/b'),
    ('gs://a/b', 'gs://a/b'),
    ('javascript://%0aalert(1)', 'javascript%3A/%250aalert%281%29'),
    ('javascript:alert(1)', 'javascript%3Aalert%281%29'),
    ('data://x', 'data%3A/x'),
  ],
)
def test_resolve_link(tmp_path, monkeypatch, target, address):
  monkeypatch.chdir(tmp_path)
  assert cells.resolve_link(target, tmp_path) == address
