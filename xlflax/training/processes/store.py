"""The key-value store of JAX's coordination service, while it is there."""

from typing import Any


class Store:
  """What is asked of a store that is gone has no answer, and is no error.

  Attributes:
    client: of JAX's coordination service.
  """

  def __init__(self, client: Any = None):
    """Takes the process's own client unless another is given."""
    self.client = client or own_client()

  def set(self, key: str, value: str) -> None:
    """Writes a value, unless another process was first."""
    try:
      self.client.key_value_set(key, value)
    except Exception:
      return  # another process was first, or the store is gone

  def get(self, key: str) -> str | None:
    """The value; None where there is none, or no store any more."""
    try:
      return self.client.key_value_try_get(key)
    except Exception:
      return None


def own_client() -> Any:
  """This process's client."""
  from jax._src import distributed

  return distributed.global_state.client
