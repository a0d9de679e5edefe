"""Pages of runs and of an encoder, through a real server."""

import json
import socket
import urllib.error
import urllib.parse
import urllib.request

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xlflax
from tests.runs import serving
from xlflax.objectives.finetuning import token_classification
from xlflax.runs import service, trial
from xlflax.training import state as state_lib
from xlflax.training.checkpointing import checkpoints, saved_objectives
from xlflax.training.devices import partitioning

pytest_plugins = ['tests.evaluation.fixtures']
_LABELS = ('DET', 'NOUN', 'VERB')
_NASTY = '<b>&"\'$title'


@pytest.fixture(scope='module')
def directory(make_run, subject, tmp_path_factory):
  """A run with a head for three labels, whose numbers are random."""
  made = make_run(tmp_path_factory.mktemp('served') / 'run')
  objective = token_classification.TokenClassification(labels=_LABELS)
  saved_objectives.write(made, [objective])
  width = subject.model.config.hidden_dim
  kernel = np.random.default_rng(0).normal(size=(width, 3)).astype('f')
  head = {'kernel': jnp.asarray(kernel), 'bias': jnp.zeros(3)}
  saved = checkpoints.Checkpoints(
    made, checkpoints.CheckpointOptions(asynchronous=False)
  )
  saved.save(
    state_lib.TrainState(
      step=jnp.int32(5),
      params=subject.params | {'heads': {objective.name: {'output': head}}},
      opt_state={'m': jnp.zeros(2)},
      ema=(),
      objective_state={},
    ),
    {'seed': 0},
  )
  saved.close()
  return made


@pytest.fixture(scope='module')
def asked(directory):
  one = partitioning.Partitioner(devices=(jax.devices()[0],))
  return trial.Trial(
    run=xlflax.open_run(directory, partitioner=one),
    texts={'de': ('die Katze schläft', 'ein Hund'), 'en': ('a dog',)},
  )


@pytest.fixture(scope='module')
def url(asked):
  """Where a server for the encoder listens."""
  answer = service.EncoderPage(asked, 'runs/a, step 5')
  with serving.served(answer) as address:
    yield address


def _get(url: str, path: str, *, host: str | None = None, **query: str):
  """(status, content) of a request."""
  full = f'{url}{path}?{urllib.parse.urlencode(query)}'
  request = urllib.request.Request(full, headers={'Host': host} if host else {})
  try:
    with urllib.request.urlopen(request, timeout=60) as reply:
      return reply.status, reply.read().decode()
  except urllib.error.HTTPError as error:
    return error.code, error.read().decode()


def _rows(url: str, question: str, **query: str):
  status, text = _get(url, f'/api/{question}', **query)
  assert status == 200, text
  return json.loads(text)['rows']


def test_masked_words(url, asked):
  text = 'ein <mask> schläft'
  rows = _rows(url, 'masked', text=text, language='de')
  (expected,) = asked.run.fill_mask([text], languages='de', top_k=10)
  assert [row['token'] for row in rows] == [one.token for one in expected]
  assert rows[0]['probability'] == pytest.approx(expected[0].probability)


def test_letters_may_be_sent_as_they_are(url):
  """As curl sends them: UTF-8, without percent signs."""
  target = '/api/masked?text=ein+<mask>+schläft&language=de'
  address = urllib.parse.urlsplit(url).netloc
  with socket.create_connection(address.split(':'), timeout=60) as opened:
    request = f'GET {target} HTTP/1.0\r\nHost: {address}\r\n\r\n'
    opened.sendall(request.encode())
    answer = opened.makefile('rb').read()
  rows = json.loads(answer.partition(b'\r\n\r\n')[2])['rows']
  assert rows == _rows(url, 'masked', text='ein <mask> schläft', language='de')


def test_a_sentence_is_its_own_nearest(url):
  rows = _rows(url, 'neighbours', text='ein Hund', language='de')
  assert len(rows) == 3
  assert (rows[0]['text'], rows[0]['language']) == ('ein Hund', 'de')
  assert rows[0]['cosine'] == pytest.approx(1, abs=1e-4)


def test_a_sentence_is_aligned_with_itself(url):
  query = dict(source='ein Hund', target='ein Hund')
  query |= dict(source_language='de', target_language='de')
  rows = _rows(url, 'alignment', **query)
  assert [(row['source'], row['target']) for row in rows] == [
    ('ein', 'ein'),
    ('Hund', 'Hund'),
  ]


def test_words_get_labels(url):
  rows = _rows(url, 'tags', text='die Katze schläft', language='de')
  assert [row['word'] for row in rows] == ['die', 'Katze', 'schläft']
  assert {row['label'] for row in rows} <= set(_LABELS)


def test_the_page_has_a_form_for_each_question_and_answers(url, asked):
  status, text = _get(url, '/masked', text=f'{_NASTY} <mask>', language='de')
  assert status == 200
  assert all(f'action="/{name}"' in text for name in asked.questions)
  assert '<b>' not in text and '&lt;b&gt;&amp;&quot;&#x27;$title' in text
  assert '<td' in text and 'probability' in text


@pytest.mark.parametrize(
  ('query', 'told'),
  [
    ({'text': 'no place', 'language': 'de'}, 'one masked place'),
    ({'text': ' ', 'language': 'de'}, 'cannot be answered'),
    ({'text': 'a' * 1001, 'language': 'de'}, "'text': 1001"),
    ({'text': 'a <mask>', 'language': 'xx'}, 'xx'),
    ({'text': 'a <mask>', 'language': 'de', 'tekst': 'b'}, 'tekst'),
  ],
)
def test_mistakes_are_said_and_the_server_goes_on(url, query, told):
  status, text = _get(url, '/api/masked', **query)
  error = json.loads(text)['error']
  assert status == 400 and error['what']
  assert told in ' '.join(map(str, error.values()))
  status, page = _get(url, '/masked', **query)
  assert status == 400 and 'role="alert"' in page
  assert _get(url, '/')[0] == 200


def test_what_is_not_served(url):
  assert _get(url, '/etc/passwd')[0] == 404
  assert _get(url, '/api/run')[0] == 404
  assert _get(url, '/', host='evil.example')[0] == 403
  assert _get(url, '/', text='a' * 9000)[0] == 414
  request = urllib.request.Request(url, data=b'a')
  with pytest.raises(urllib.error.HTTPError, match='501'):
    urllib.request.urlopen(request, timeout=60)


def test_a_run_without_head_and_texts_has_two_questions(asked):
  bare = trial.Trial(run=asked.run.at('untrained'), texts={})
  assert bare.questions[:2] == ('masked', 'alignment')
  assert 'neighbours' not in bare.questions


def _report(step: int) -> str:
  train = {'loss': 5.0 - step, 'mlm/loss/de': 5.0, 'mlm/loss/en': 4.0}
  return json.dumps({'step': step, 'train': train | {'mlm/loss': 4.5}}) + '\n'


def test_the_page_of_runs_grows(tmp_path):
  run, folder = tmp_path / 'run', tmp_path / 'page'
  run.mkdir()
  page = service.runs_page(
    {'<a>': str(run)}, folder, ['xlflax', 'serve', 'run']
  )
  first = page('/', {})
  assert 'Nothing to show yet' in first.body
  assert 'setInterval' in first.body
  (run / 'metrics.jsonl').write_text(_report(1))
  second = page('/', {})
  assert '&lt;a&gt;' in second.body and '4.0000' in second.body
  assert 'by language' in second.body
  changed = (folder / 'report.html').stat().st_mtime_ns
  assert page('/', {}).body == second.body
  assert (folder / 'report.html').stat().st_mtime_ns == changed
  with open(run / 'metrics.jsonl', 'a') as lines:
    lines.write(_report(2))
  assert '3.0000' in page('/', {}).body
  assert page('/other', {}).status == 404
