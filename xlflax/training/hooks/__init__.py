"""Hooks of the training loop."""

from typing import TYPE_CHECKING

from xlflax.foundation import lazy

if TYPE_CHECKING:
  from xlflax.training.hooks.base import Hook as Hook
  from xlflax.training.hooks.base import Request as Request
else:
  __getattr__, __dir__, __all__ = lazy.exports(__spec__)
