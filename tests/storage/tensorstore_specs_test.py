"""TensorStore endpoints of buckets."""

from tests.errors import raises_error
from xlflax.storage import tensorstore_specs
from xlflax.utils import errors


def test_bucket_paths_are_converted_to_specs(monkeypatch):
  for name in ('AWS_ENDPOINT_URL', 'AWS_ENDPOINT_URL_S3'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setenv('AWS_REGION', 'eu-west-1')
  assert tensorstore_specs.kvstore_spec('s3://b/x/') == {
    'driver': 's3',
    'bucket': 'b',
    'path': 'x/',
    'aws_region': 'eu-west-1',
  }
  monkeypatch.setenv('AWS_ENDPOINT_URL', 'http://minio:9000')
  assert (
    tensorstore_specs.kvstore_spec('s3://b/x')['endpoint']
    == 'http://minio:9000'
  )
  assert tensorstore_specs.kvstore_spec('gs://b/x')['driver'] == 'gcs'
  assert tensorstore_specs.kvstore_spec('/a/b') == {
    'driver': 'file',
    'path': '/a/b',
  }
  assert tensorstore_specs.kvstore_spec('/a/../b/')['path'] == '/b/'
  with raises_error(
    errors.RunDirectoryError, got='az://b/x', mentions='blobfuse2'
  ):
    tensorstore_specs.kvstore_spec('az://b/x')


def test_endpoints_are_read_from_the_environment(monkeypatch):
  monkeypatch.setenv('AWS_ENDPOINT_URL', 'http://minio:9000')
  monkeypatch.delenv('AWS_ENDPOINT_URL_S3', raising=False)
  monkeypatch.delenv('AZURE_STORAGE_CONNECTION_STRING', raising=False)
  monkeypatch.setenv('AZURE_STORAGE_ACCOUNT_NAME', 'one')
  endpoints = [
    tensorstore_specs.get_endpoint(scheme) for scheme in ('gs', 's3', 'az')
  ]
  assert endpoints == ['', 'http://minio:9000', 'one']
