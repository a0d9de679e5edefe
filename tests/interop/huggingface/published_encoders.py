"""Sentence-Transformers folders like those of known models.

Reference vectors are computed with the library if it is installed, else with
transformers and NumPy.
"""

import json
import pathlib
import typing

import numpy as np
import safetensors.numpy
import torch
import transformers

from tests.interop.huggingface import reference_tokenizers

TEXTS = [
  'The cat',
  'ein Mensch, ein Wort',
  'the dog ate 1,234 apples in 2021!',
  'a cat ate the dog',
]
WIDTH = 30
_V6 = 'sentence_transformers'


class Style(typing.NamedTuple):
  """Modules that follow the Transformer, and the prompts of a model.

  Attributes:
    pooling: 'cls' or 'mean'.
    dense: Number of outputs of the dense layer with a Tanh activation. If None,
      the model has no dense layer.
    prompts: Mapping from the names of the prompts to their texts.
    default_prompt: Name of the prompt that is used if no prompt is selected.
  """

  pooling: str
  dense: int | None = None
  prompts: dict[str, str] = {}
  default_prompt: str | None = None


STYLES = {
  'labse': Style('cls', dense=8),
  'bge-m3': Style('cls'),
  'e5': Style(
    'mean',
    prompts={'query': 'the dog: ', 'passage': 'ein Wort: '},
    default_prompt='query',
  ),
}


def make_encoder(folder: pathlib.Path) -> None:
  """Writes the encoder and its tokenizer."""
  tokenizer = reference_tokenizers.bert(folder, do_lower_case=False)
  tokenizer.save_pretrained(folder)
  torch.manual_seed(0)
  config = transformers.BertConfig(
    vocab_size=len(tokenizer),
    hidden_size=WIDTH,
    num_hidden_layers=2,
    num_attention_heads=5,
    intermediate_size=52,
    max_position_embeddings=40,
    initializer_range=0.1,
  )
  transformers.BertModel(config).save_pretrained(folder)


def write_encoder(folder: pathlib.Path, style: Style) -> pathlib.Path:
  """Writes a folder in the format of version 6 of the library."""
  folder.mkdir(parents=True)
  make_encoder(folder)
  kinds = ['base.modules.transformer.Transformer']
  kinds.append('sentence_transformer.modules.pooling.Pooling')
  if style.dense:
    kinds.append('base.modules.dense.Dense')
  kinds.append('base.modules.normalize.Normalize')
  paths = [''] + [
    f'{i}_{kind.rpartition(".")[-1]}' for i, kind in enumerate(kinds) if i
  ]
  for path in paths:
    (folder / path).mkdir(exist_ok=True)
  modules = [
    {'idx': i, 'name': str(i), 'path': path, 'type': f'{_V6}.{kind}'}
    for i, (path, kind) in enumerate(zip(paths, kinds, strict=True))
  ]
  _dump(folder / 'modules.json', modules)
  _dump(
    folder / '1_Pooling/config.json',
    {
      'embedding_dimension': WIDTH,
      'pooling_mode': style.pooling,
      'include_prompt': True,
    },
  )
  _dump(
    folder / 'config_sentence_transformers.json',
    {
      'prompts': style.prompts,
      'default_prompt_name': style.default_prompt,
      'similarity_fn_name': 'cosine',
    },
  )
  _dump(folder / 'sentence_bert_config.json', {'max_seq_length': 12})
  if style.dense:
    _write_dense(folder / '2_Dense', style.dense)
  return folder


def compute_vectors(
  folder: pathlib.Path, texts, prompt: str = ''
) -> np.ndarray:
  """Returns the reference vectors of texts with a prompt, float [N, D]."""
  try:
    import sentence_transformers
  except ImportError:
    return _compute_with_numpy(folder, texts, prompt)
  model = sentence_transformers.SentenceTransformer(str(folder), device='cpu')
  return model.encode(list(texts), prompt=prompt)


def _compute_with_numpy(
  folder: pathlib.Path, texts, prompt: str = ''
) -> np.ndarray:
  """Applies the modules with transformers and NumPy."""
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  model = transformers.AutoModel.from_pretrained(folder).eval()
  pooling = json.loads((folder / '1_Pooling/config.json').read_text())
  vectors = []
  for text in texts:
    encoded = tokenizer(
      prompt + text, truncation=True, max_length=12, return_tensors='pt'
    )
    with torch.no_grad():
      states = model(**encoded).last_hidden_state[0].numpy()
    first = pooling['pooling_mode'] == 'cls'
    vectors.append(states[0] if first else states.mean(0))
  stacked = np.stack(vectors)
  if (folder / '2_Dense').exists():
    weights = safetensors.numpy.load_file(folder / '2_Dense/model.safetensors')
    stacked = np.tanh(
      stacked @ weights['linear.weight'].T + weights['linear.bias']
    )
  return stacked / np.linalg.norm(stacked, axis=1, keepdims=True)


def _write_dense(folder: pathlib.Path, size: int) -> None:
  _dump(
    folder / 'config.json',
    {
      'in_features': WIDTH,
      'out_features': size,
      'bias': True,
      'activation_function': 'torch.nn.modules.activation.Tanh',
    },
  )
  rng = np.random.default_rng(0)
  safetensors.numpy.save_file(
    {
      'linear.weight': (rng.normal(size=(size, WIDTH)) / 6).astype('float32'),
      'linear.bias': rng.normal(size=size).astype('float32'),
    },
    folder / 'model.safetensors',
  )


def _dump(path: pathlib.Path, content) -> None:
  path.write_text(json.dumps(content))
