"""Campaign of fuzzed inputs, which are read or rejected with one message.

Hypothesis generates every type of file that a user can provide: corpora,
dictionaries, labeled examples, gin, flags, and Hugging Face directories. An
exception must be an `XlflaxError` with a short message; any other exception
would show the user a traceback.
"""

import contextlib
import io
import json
import pathlib
import pickle
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
from hypothesis import strategies as st

from tests.campaigns import counts, fuzzed_flags
from xlflax.config import gin_config
from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.supervised.readers import (
  classification_reader,
  conll,
  conllu,
  parallel_reader,
  reviews,
  squad,
  word_alignment_reader,
)
from xlflax.data.tokenizers import base_vocabulary
from xlflax.interop.huggingface import config_json
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors

READ, REJECTED, TRACEBACK = 'read', 'rejected', 'traceback'
_MAX_MESSAGE_LENGTH = 50_000
_MAX_MEMORY = 2 << 30  # bytes per input
_STATM = pathlib.Path('/proc/self/statm')

_line = fuzzed_flags.LINE
_text = st.lists(_line, max_size=8).map(
  lambda lines: '\n'.join(lines).encode('utf-8', 'surrogatepass')
)
_bytes = st.one_of(_text, st.binary(max_size=300))
_scalar = st.one_of(
  st.none(),
  st.booleans(),
  st.integers(),
  st.floats(),
  st.text(max_size=10),
  st.just(10**400),
)
_json = st.recursive(
  _scalar,
  lambda inner: st.one_of(
    st.lists(inner, max_size=4),
    st.dictionaries(st.text(max_size=8), inner, max_size=4),
  ),
  max_leaves=12,
)


def _dump_json(value: Any) -> bytes:
  return json.dumps(value).encode('utf-8', 'surrogatepass')


def _json_like(*keys: str):
  """JSON objects, some of which have the keys of this type of file."""
  objects = st.dictionaries(st.sampled_from(keys), _json, max_size=len(keys))
  deep = st.integers(1, 200_000).map(lambda n: b'[' * n)
  digits = st.just(b'{"size": ' + b'9' * 5000 + b'}')
  return st.one_of(
    objects.map(_dump_json), _json.map(_dump_json), _bytes, deep, digits
  )


_squad = st.fixed_dictionaries(
  {
    'data': st.lists(
      st.fixed_dictionaries(
        {
          'paragraphs': st.one_of(
            _json,
            st.lists(
              st.fixed_dictionaries({'context': _json, 'qas': _json}),
              max_size=2,
            ),
          )
        }
      ),
      max_size=2,
    )
  }
).map(_dump_json)

_field = st.sampled_from(
  ['1', '0', '2', '-1', '1-2', '1.1', '99999999999999999999', '_', 'w', 'NOUN']
)
_conllu = st.lists(
  st.one_of(
    st.lists(_field, min_size=8, max_size=11).map('\t'.join),
    st.just(''),
    st.just('# text = a'),
    _line,
  ),
  max_size=12,
).map(lambda lines: '\n'.join(lines).encode('utf-8', 'surrogatepass'))

_gin = st.one_of(
  st.builds(
    '{}={}'.format,
    st.sampled_from(
      [
        'TRAIN_STEPS',
        'LEARNING_RATE',
        'SEED',
        'trainer.Trainer.seed',
        'trainer.Trainer.gradient_accumulation_steps',
        'nothing.Like.this',
        'DatasetConfig.length',
      ]
    ),
    st.one_of(
      st.sampled_from(
        ["'x'", 'None', '1e400', '-1', '[', '@x()', '%Y', '{}', '9' * 5000]
      ),
      _line,
    ),
  ),
  _line,
)


class _Storage:
  """Storage descriptor of a tensor in a PyTorch `.bin` file."""

  def __init__(self, key: str, size: int):
    self.pid = ('storage', 'FLOAT', key, 'cpu', size)


def _torch_file(offset, shape, strides, size) -> bytes:
  """Returns a file in PyTorch's legacy format with one tensor."""
  import collections

  class _Pickler(pickle._Pickler):  # type: ignore[name-defined]
    def persistent_id(self, value):
      return value.pid if isinstance(value, _Storage) else None

  file = io.BytesIO()
  for value in (0x1950A86A20F9469CFC6C, 1001, {}):
    pickle.dump(value, file, 2)
  state = collections.OrderedDict(
    [('w', (_Storage('0', size), offset, shape, strides))]
  )
  _Pickler(file, 2).dump(state)
  pickle.dump(['0'], file, 2)
  file.write(size.to_bytes(8, 'little', signed=True) + bytes(40))
  return file.getvalue()


_small = st.integers(-3, 12)
_torch = st.one_of(
  st.builds(
    _torch_file,
    _small,
    st.lists(_small, max_size=3).map(tuple),
    st.lists(_small, max_size=3).map(tuple),
    _small,
  ),
  st.binary(max_size=200),
  st.just(pickle.dumps(eval)),
)


_hf_config = st.fixed_dictionaries(
  {
    'model_type': st.sampled_from(['xlm-roberta', 'bert', 'mt5', 'modernbert']),
    'architectures': st.one_of(st.just(['XLMRobertaForMaskedLM']), _json),
  },
  optional={
    name: st.one_of(_json, st.integers(-2, 64))
    for name in (
      'hidden_size',
      'vocab_size',
      'num_attention_heads',
      'num_hidden_layers',
      'hidden_act',
      'layer_norm_eps',
      'id2label',
      'max_position_embeddings',
    )
  },
).map(_dump_json)


def _read_lines(path: pathlib.Path) -> Any:
  return list(corpus_lines.read_lines(path))


def _read_pairs(path: pathlib.Path) -> Any:
  return [
    corpus_lines.split_columns(line, path, number)
    for number, line in corpus_lines.read_lines(path)
  ]


def _read_tensors(path: pathlib.Path) -> Any:
  return list(
    tensor_files.read_tensors(tensor_files.find_tensors(path.parent).values())
  )


def _parse_gin(path: pathlib.Path) -> Any:
  text = path.read_bytes().decode('utf-8', 'surrogatepass')
  return gin_config.load_gin_files(['pretrain/mlm.gin'], [text], partial=True)


# Name -> (file name, strategy of its content, reader).
TARGETS: dict[str, tuple[str, Any, Callable[[pathlib.Path], Any]]] = {
  'text': ('en.txt', _bytes, _read_lines),
  'gz': ('en.txt.gz', _bytes, _read_lines),
  'zst': ('en.txt.zst', _bytes, _read_lines),
  'pairs': ('de-en.tsv', _bytes, _read_pairs),
  'dictionary': (
    'de-en.tsv',
    _bytes,
    lambda path: list(corpus_lines.read_dictionary(path)),
  ),
  'tsv': (
    'a.tsv',
    _bytes,
    lambda path: classification_reader.read_tsv(path, 'en'),
  ),
  'jsonl': (
    'a.jsonl',
    _json_like('text', 'label', 'sentence1', 'sentence2'),
    lambda path: classification_reader.read_jsonl(path, 'en'),
  ),
  'conll': ('a.conll', _conllu, lambda path: conll.read_conll(path, 'en')),
  'conllu': ('a.conllu', _conllu, lambda path: conllu.read_trees(path, 'en')),
  'tags': ('a.conllu', _conllu, lambda path: conllu.read_tags(path, 'en')),
  'squad': (
    'a.json',
    st.one_of(_squad, _json_like('data', 'version')),
    lambda path: squad.read_squad(path, 'en'),
  ),
  'parallel': ('a.tsv', _bytes, lambda path: parallel_reader.read_tsv(path)),
  'reviews': (
    'a.review',
    _bytes,
    lambda path: reviews.read_reviews(path, 'en'),
  ),
  'alignment': (
    'a.txt',
    _bytes,
    lambda path: word_alignment_reader.read_aligned_sentences(
      [path], ('de', 'en')
    ),
  ),
  'gin': (
    'a.gin',
    _gin.map(lambda t: t.encode('utf-8', 'surrogatepass')),
    _parse_gin,
  ),
  'launchers': (
    'flags.json',
    fuzzed_flags.LAUNCHES.map(_dump_json),
    fuzzed_flags.render_launch,
  ),
  'flags': (
    'flags.json',
    fuzzed_flags.CALLS.map(_dump_json),
    fuzzed_flags.run_call,
  ),
  'hf config': (
    'config.json',
    st.one_of(_hf_config, _json_like('model_type', 'architectures')),
    lambda path: config_json.describe_model(path.parent),
  ),
  'hf index': (
    'model.safetensors.index.json',
    _json_like('weight_map', 'metadata'),
    _read_tensors,
  ),
  'safetensors': ('model.safetensors', st.binary(max_size=200), _read_tensors),
  'torch': ('pytorch_model.bin', _torch, _read_tensors),
  'vocabulary': (
    'vocabulary.json',
    _json_like('format', 'type', 'size', 'hash', 'languages'),
    lambda path: base_vocabulary.Vocabulary.load(path.parent),
  ),
  'model.json': (
    'model.json',
    _json_like('class', 'fields', 'digest'),
    lambda path: run_directory.read_model(path.parent),
  ),
}


def run_campaign(*, cases: int, seed: int = 0) -> counts.Counts:
  """Gives every reader the same number of files.

  Args:
    cases: Approximate total number of cases.
    seed: Random seed of Hypothesis.
  """
  totals = counts.Counts()
  cases_per_target = -(-cases // len(TARGETS))
  with _limited_memory():
    for name, target in TARGETS.items():
      _fuzz(name, target, cases_per_target, seed, totals)
  return totals


@contextlib.contextmanager
def _limited_memory() -> Iterator[None]:
  """Limits memory, so that a huge input raises a MemoryError."""
  before = resource.getrlimit(resource.RLIMIT_AS)
  used = int(_STATM.read_text().split()[0]) * resource.getpagesize()
  resource.setrlimit(resource.RLIMIT_AS, (used + _MAX_MEMORY, before[1]))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_AS, before)


def _fuzz(name, target, cases, seed, totals) -> None:
  file, contents, read = target

  @hypothesis.seed(seed)
  @hypothesis.settings(
    max_examples=cases,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.generate],
  )
  @hypothesis.given(contents)
  def run(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / file
      path.write_bytes(content)
      start = time.monotonic()
      outcome, problem = _outcome(read, path)
      if time.monotonic() - start > 60:
        problem = problem or 'it took more than a minute'
    totals.add(outcome, problem and f'{name}: {problem}: {content[:80]!r}')

  run()


def _outcome(read, path: pathlib.Path) -> tuple[str, str]:
  try:
    read(path)
  except errors.XlflaxError as error:
    text = str(error)
    too_long = len(text) > _MAX_MESSAGE_LENGTH
    return REJECTED, f'{len(text)} characters' if too_long else ''
  except Exception as error:
    return TRACEBACK, f'{type(error).__name__}: {error}'[:200]
  return READ, ''
