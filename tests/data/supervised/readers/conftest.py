import pytest


@pytest.fixture
def write(tmp_path):
  """Returns a function that writes text to a file and returns its path."""

  def make(name: str, text: str | bytes) -> str:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)

  return make
