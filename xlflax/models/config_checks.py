"""Checks that the fields of an `EncoderConfig` are consistent."""

from xlflax.utils import errors


def check_layers(config) -> None:
  """Raises ConfigError if the layer settings are inconsistent.

  Args:
    config: `EncoderConfig` to check.
  """
  problems = []
  is_rotary = config.position_embedding == 'rotary'
  if is_rotary and config.dim_per_head % 2:
    problems.append(
      f'rotary positions with heads of odd width {config.dim_per_head}'
    )
  if is_rotary and config.cross_attention:
    problems.append('rotary positions with cross_attention')
  is_disentangled = config.position_embedding == 'disentangled'
  if is_disentangled and config.num_kv_heads is not None:
    problems.append('disentangled positions with num_kv_heads')
  if not is_rotary and config.local_rope_theta is not None:
    problems.append('local_rope_theta without rotary positions')
  if not is_rotary and config.rope_scaling_factor != 1:
    problems.append('rope_scaling_factor without rotary positions')
  if config.num_kv_heads and config.num_heads % config.num_kv_heads:
    problems.append(
      f'num_heads={config.num_heads} with num_kv_heads={config.num_kv_heads}'
    )
  if config.global_attn_every_n_layers != 1 and config.local_attention is None:
    problems.append(
      f'global_attn_every_n_layers={config.global_attn_every_n_layers} '
      'without local_attention'
    )
  if not config.first_attention_norm and config.norm_position != 'pre':
    problems.append("first_attention_norm=False with norm_position='post'")
  if problems:
    raise errors.ConfigError(
      'The settings of the encoder layers are inconsistent',
      got='; '.join(problems),
      where='EncoderConfig',
      expected=(
        'rotary positions only with an even head width and without '
        'cross-attention; local layers only with local_attention; a '
        'num_kv_heads that divides num_heads'
      ),
    )


def check_sizes(config) -> None:
  """Raises ConfigError if `num_heads` does not divide `hidden_dim`.

  Args:
    config: `EncoderConfig` to check.
  """
  if config.head_dim is None and config.hidden_dim % config.num_heads:
    raise errors.ConfigError(
      '`hidden_dim` must be a multiple of `num_heads`',
      got=f'hidden_dim={config.hidden_dim}, num_heads={config.num_heads}',
      expected='a multiple of num_heads',
      where='EncoderConfig.hidden_dim',
      fix='Change hidden_dim or num_heads, or set head_dim.',
    )


def check_output(config) -> None:
  """Raises ConfigError if the model does not support untied embeddings.

  Args:
    config: `EncoderConfig` to check.
  """
  if config.tie_word_embeddings:
    return
  if config.mlm_head == 'none' or (
    config.sharing is not None and config.sharing.embeddings
  ):
    raise errors.ConfigError(
      'Separate output embeddings require a masked-LM head and embeddings '
      'that all languages share',
      got=f'mlm_head={config.mlm_head.value!r}, sharing={config.sharing}',
      expected='a masked-LM head, and embeddings that all languages share',
      where='EncoderConfig.tie_word_embeddings',
      fix='Set tie_word_embeddings to True.',
    )
