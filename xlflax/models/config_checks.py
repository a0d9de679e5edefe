"""Checks of an `EncoderConfig`: what goes together."""

from xlflax.utils import errors


def check_layers(config) -> None:
  """Raises ConfigError for settings of layers that do not go together.

  Args:
    config: an `EncoderConfig`.
  """
  problems = []
  is_rotary = config.position_embedding == 'rotary'
  if is_rotary and config.dim_per_head % 2:
    problems.append(f'rotary positions with heads of {config.dim_per_head}')
  if is_rotary and config.cross_attention:
    problems.append('rotary positions with cross_attention')
  if config.position_embedding == 'disentangled' and (
    config.num_kv_heads is not None
  ):
    problems.append('disentangled positions with num_kv_heads')
  if not is_rotary and config.local_rotary_theta is not None:
    problems.append('local_rotary_theta without rotary positions')
  if not is_rotary and config.rotary_factor != 1:
    problems.append('rotary_factor without rotary positions')
  if config.num_kv_heads and config.num_heads % config.num_kv_heads:
    problems.append(f'{config.num_heads} heads, {config.num_kv_heads} of keys')
  if config.global_every != 1 and config.local_window is None:
    problems.append(f'global_every = {config.global_every} without a window')
  if not config.first_norm and config.norm_position != 'pre':
    problems.append("first_norm = False with norm_position = 'post'")
  if problems:
    raise errors.ConfigError(
      "The encoder's layers do not fit together",
      got='; '.join(problems),
      where='EncoderConfig',
      expected='heads of even width for rotary positions, and none for '
      'cross-attention; local layers with a local_window; kv heads that '
      'divide the heads',
    )


def check_sizes(config) -> None:
  """Raises ConfigError for heads that do not divide the width."""
  if config.head_dim is None and config.hidden_dim % config.num_heads:
    raise errors.ConfigError(
      'The heads do not divide the width of the encoder',
      got=f'hidden_dim = {config.hidden_dim}, num_heads = {config.num_heads}',
      expected='a multiple of num_heads',
      where='EncoderConfig.hidden_dim',
      fix='change either, or set head_dim',
    )


def check_output(config) -> None:
  """Raises ConfigError for an output table that nothing uses."""
  if config.output_embeddings == 'tied':
    return
  if config.mlm_head == 'none' or (
    config.sharing is not None and config.sharing.embeddings
  ):
    raise errors.ConfigError(
      'The encoder has no use for output embeddings of its own',
      got=f'mlm_head = {config.mlm_head.value}, sharing = {config.sharing}',
      expected='a head, and embeddings that all languages share',
      where='EncoderConfig.output_embeddings',
      fix="set it to 'tied'",
    )
