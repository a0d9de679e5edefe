"""Equations 1 to 13 of VECO in NumPy and float64, one pair at a time.

A pair consists of two lists of tokens without padding. The parameters are those
of a scanned post-LN encoder.
"""

import math

import numpy as np

_ERF = np.vectorize(math.erf)


def _gelu(x):
  return 0.5 * x * (1 + _ERF(x / math.sqrt(2)))


def _norm(x, p, epsilon=1e-12):
  x = x - x.mean(-1, keepdims=True)
  x = x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
  return x * p['scale'] + p['bias']


def _attention(queries, memory, p):
  """Computes equations 2 to 5 (memory = queries) or 6 to 9 (memory = H^L)."""
  output = np.zeros(queries.shape) + p['output']['bias']
  for n in range(p['query']['kernel'].shape[1]):
    q, k, v = (
      x @ p[name]['kernel'][:, n] + p[name]['bias'][n]
      for name, x in (('query', queries), ('key', memory), ('value', memory))
    )
    scores = q @ k.T / math.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    output += weights @ v @ p['output']['kernel'][n]
  return output


def _slice(tree, i):
  if isinstance(tree, dict):
    return {name: _slice(part, i) for name, part in tree.items()}
  return np.asarray(tree[i], np.float64)


def states(params, tokens, positions, memory=None):
  """Returns H^L [n, H] of n tokens, or S^L with a memory [m, H]."""
  tables = params['embeddings']
  x = tables['token'][tokens] + tables['position'][positions]
  x = _norm(np.asarray(x, np.float64), tables['norm'])
  for i in range(params['layers']['mlp']['wi']['bias'].shape[0]):
    p = _slice(params['layers'], i)
    x = _norm(x + _attention(x, x, p['attention']), p['attention_norm'])
    if memory is not None:
      x = _norm(
        x + _attention(x, memory, p['cross_attention']),
        p['cross_attention_norm'],
      )
    hidden = _gelu(x @ p['mlp']['wi']['kernel'] + p['mlp']['wi']['bias'])
    x = _norm(
      x + hidden @ p['mlp']['wo']['kernel'] + p['mlp']['wo']['bias'],
      p['mlp_norm'],
    )
  return x


def log_probabilities(params, states):
  """Returns log softmax(f(states)), [n, V] (equations 10 to 13)."""
  dense = params['head_dense']
  hidden = _norm(
    _gelu(states @ dense['kernel'] + dense['bias']), params['head_norm']
  )
  logits = hidden @ params['embeddings']['token'].T + params['output_bias']
  logits = logits - logits.max(-1, keepdims=True)
  return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def pair_terms(params, token_ids, positions, memory_params=None):
  """Computes log P of every token at every position of a pair (equation 1).

  Args:
    params: Parameters of the model.
    token_ids: (x̂, ŷ), the token ids of both sentences.
    positions: Positions of the tokens of both sentences.
    memory_params: Parameters that compute H^L of the pair. If None, `params`.

  Returns:
    ((log P(. | x̂), log P(. | ŷ, x̂)), the same of y), [n, V] each.
  """
  hidden_states, memory = (
    [states(p, *side) for side in zip(token_ids, positions, strict=True)]
    for p in (params, memory_params or params)
  )
  return tuple(
    (
      log_probabilities(params, hidden_states[i]),
      log_probabilities(
        params, states(params, token_ids[i], positions[i], memory[1 - i])
      ),
    )
    for i in range(2)
  )
