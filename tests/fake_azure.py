"""Azurite, Azure's official emulator (`npm install azurite`)."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile

import pytest

from tests.end_to_end.conftest import free_port

# The default account of Azurite, which is public.
_NAME = 'devstoreaccount1'
_KEY = (
  'Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K'
  '1SZFPTOtr/KBHBeksoGMGw=='
)


@functools.cache
def get_shared_store() -> None:
  """Returns a server for this process's clients, with container `bucket`."""
  adlfs = pytest.importorskip('adlfs')
  program = shutil.which('azurite-blob')
  if program is None:
    pytest.skip('azurite-blob is not on the PATH')
  port, folder = free_port(), tempfile.mkdtemp()
  process = subprocess.Popen(
    [
      *(program, '--silent', '--skipApiVersionCheck', '--disableTelemetry'),
      *('--location', folder, '--blobPort', str(port)),
    ]
  )
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  atexit.register(process.kill)
  os.environ['AZURE_STORAGE_CONNECTION_STRING'] = (
    f'DefaultEndpointsProtocol=http;AccountName={_NAME};AccountKey={_KEY};'
    f'BlobEndpoint=http://127.0.0.1:{port}/{_NAME};'
  )
  adlfs.AzureBlobFileSystem(
    connection_string=os.environ['AZURE_STORAGE_CONNECTION_STRING']
  ).mkdir('bucket')
