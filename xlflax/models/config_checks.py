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
      "position_embedding='rotary' requires heads of even width, but the width "
      f'is {config.dim_per_head}'
    )
  if is_rotary and config.cross_attention:
    problems.append(
      "position_embedding='rotary' does not support cross_attention=True"
    )
  is_disentangled = config.position_embedding == 'disentangled'
  if is_disentangled and config.num_kv_heads is not None:
    problems.append(
      "position_embedding='disentangled' does not support "
      f'num_kv_heads={config.num_kv_heads}'
    )
  if not is_rotary and config.local_rope_theta is not None:
    problems.append("local_rope_theta requires position_embedding='rotary'")
  if not is_rotary and config.rope_scaling_factor != 1:
    problems.append("rope_scaling_factor requires position_embedding='rotary'")
  if config.num_kv_heads and config.num_heads % config.num_kv_heads:
    problems.append(
      'num_kv_heads must divide num_heads, but found '
      f'num_heads={config.num_heads} and num_kv_heads={config.num_kv_heads}'
    )
  if config.global_attn_every_n_layers != 1 and config.local_attention is None:
    problems.append(
      f'global_attn_every_n_layers={config.global_attn_every_n_layers} '
      'requires local_attention'
    )
  if not config.first_attention_norm and config.norm_position != 'pre':
    problems.append(
      "first_attention_norm=False requires norm_position='pre', but found "
      "norm_position='post'"
    )
  if problems:
    raise errors.ConfigError('. '.join(problems), where=type(config).__name__)


def check_sizes(config) -> None:
  """Raises ConfigError if `num_heads` does not divide `hidden_dim`.

  Args:
    config: `EncoderConfig` to check.
  """
  if config.head_dim is None and config.hidden_dim % config.num_heads:
    raise errors.ConfigError(
      '`hidden_dim` must be a multiple of `num_heads`, but found '
      f'hidden_dim={config.hidden_dim} and num_heads={config.num_heads}',
      where=errors.field_location(config, 'hidden_dim'),
      fix='Change hidden_dim or num_heads, or set head_dim.',
    )


def check_output(config) -> None:
  """Raises ConfigError if untied output embeddings are set but not supported.

  Args:
    config: `EncoderConfig` to check.
  """
  if config.tie_word_embeddings:
    return
  if config.mlm_head == 'none' or (
    config.sharing is not None and config.sharing.embeddings
  ):
    raise errors.ConfigError(
      'tie_word_embeddings=False requires a masked-LM head and embeddings that '
      'all languages share. Found '
      f'mlm_head={config.mlm_head.value!r} and sharing={config.sharing}',
      where=errors.field_location(config, 'tie_word_embeddings'),
      fix='Set tie_word_embeddings to True.',
    )
