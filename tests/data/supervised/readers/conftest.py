import pytest


@pytest.fixture
def write(tmp_path):
  """A function that writes text into a file and gives its path."""

  def make(name: str, text: str | bytes) -> str:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)

  return make
