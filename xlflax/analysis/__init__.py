"""How similar languages are inside of a model: pure functions over states."""
