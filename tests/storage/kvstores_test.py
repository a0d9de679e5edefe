"""Where TensorStore finds a bucket."""

from xlflax.storage import kvstores


def test_addresses(monkeypatch):
  for name in ('AWS_ENDPOINT_URL', 'AWS_ENDPOINT_URL_S3'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setenv('AWS_REGION', 'eu-west-1')
  assert kvstores.spec('s3://b/x/') == {
    'driver': 's3',
    'bucket': 'b',
    'path': 'x/',
    'aws_region': 'eu-west-1',
  }
  monkeypatch.setenv('AWS_ENDPOINT_URL', 'http://minio:9000')
  assert kvstores.spec('s3://b/x')['endpoint'] == 'http://minio:9000'
  assert kvstores.spec('gs://b/x')['driver'] == 'gcs'
