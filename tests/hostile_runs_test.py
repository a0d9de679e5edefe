"""Model directories whose files are whole, and say what cannot be."""

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
def made(tmp_path_factory):
  root = tmp_path_factory.mktemp('made')
  (root / 'hf').mkdir()
  handmade.write(root / 'hf')
  made = huggingface_import.convert_import(
    huggingface_import.check_import(root / 'hf'), root / 'run'
  )
  encoding = sentence_embedding.SentenceEmbedding(prompts={'query': 'ask: '})
  sentence_embedding.write_sentence_encoding(made, encoding)
  return made


@pytest.fixture
def run(made):
  """The run; files that a test changes are put back."""
  kept = {path: path.read_bytes() for path in made.rglob('*') if path.is_file()}
  yield made
  for path in made.rglob('*'):
    if path.is_file() and path not in kept:
      path.unlink()
  for path, content in kept.items():
    path.write_bytes(content)


def _places(value, place=()):
  yield place
  if isinstance(value, dict):
    for key in value:
      yield from _places(value[key], (*place, key))
  elif isinstance(value, list) and value:
    yield from _places(value[0], (*place, 0))


def _put(value, place, new):
  if not place:
    return new
  value = folder = copy.deepcopy(value)
  for key in place[:-1]:
    folder = folder[key]
  folder[place[-1]] = new
  return value


def _changed(path, step):
  """Texts of a file with a value put in each place; every `step`-th of them."""
  before = json.loads(path.read_text())
  own = before.pop(checksums.OWN, None) is not None
  for place, value in list(itertools.product(_places(before), _VALUES))[::step]:
    new = _put(before, place, value)
    if own and isinstance(new, dict):
      new = checksums.add_digest(new)
    yield json.dumps(new)
  yield from _DEEP


@pytest.mark.parametrize(
  ('name', 'step'),
  [
    ('model.json', 7),
    ('objectives.json', 1),
    ('huggingface.json', 17),
    ('sentence.json', 3),
    ('finished.json', 1),
    ('vocabulary/vocabulary.json', 17),
    ('checkpoints/0/params/digests.json', 3),
  ],
)
def test_every_value(run, name, step):
  """Each is read, or refused in one message; nothing else is raised."""
  refused = tried = 0
  for text in _changed(run / name, step):
    (run / name).write_text(text)
    tried += 1
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
      refused += 1
      assert len(str(error)) < 20_000
  assert tried > 3
  assert refused or name == 'finished.json'


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
def test_a_model_far_larger_than_its_checkpoint(run, field, scan):
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


def test_results(run):
  """What is no result is not used, with a warning."""
  folder = run / 'eval' / 'task' / 'test-0123'
  folder.mkdir(parents=True)
  good = {
    'step': 7,
    'settings_hash': 'x',
    'metrics': {'a/mean': 1.0, 'a/de': None},
    'tables': {'t': [{'a': 1}]},
    'notes': ['n'],
    'failures': [{'task': 't', 'part': 'p', 'message': 'm'}],
  }
  file = folder / '7.json'
  file.write_text(json.dumps(checksums.add_digest(good)))
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
def test_links_of_pages(tmp_path, monkeypatch, target, address):
  monkeypatch.chdir(tmp_path)
  assert cells.resolve_link(target, tmp_path) == address
