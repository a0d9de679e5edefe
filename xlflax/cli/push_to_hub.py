"""`xlflax push-to-hub`: uploads a model to the Hugging Face Hub."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class PushToHubOptions:
  """Uploads an exported model to the Hugging Face Hub.

  New models are private. Weight files, ONNX graphs and modules.json from an
  earlier upload that are not in the directory are deleted from the Hub.

  Attributes:
    directory: Directory written by `xlflax convert to-hf`. You may edit its
      README.md before the upload.
    name: Name of the model on the Hub, as ORGANIZATION/NAME.
    dry_run: Check the directory and print its files and model card without
      uploading them.
    public: Make the model public when it is created.
  """

  directory: str = dataclasses.field(kw_only=False)
  name: str = dataclasses.field(kw_only=False)
  dry_run: bool = False
  public: bool = False


EXAMPLES = r"""
Print what would be uploaded:
  xlflax push-to-hub models/mine me/mine --dry_run

Upload a private model, after `hf auth login`:
  xlflax push-to-hub models/mine me/mine
"""


def main(options: PushToHubOptions) -> None:
  """Prints the files and the model card, and uploads them."""
  from xlflax.interop.huggingface import hub_files

  upload = hub_files.prepare_upload(options.directory)
  hub_files.check_name(options.name)
  print(upload)
  if options.dry_run:
    print(f'Dry run: No files were uploaded to {options.name}.')
    return
  address = hub_files.push_to_hub(
    upload, options.name, private=not options.public
  )
  print(f'Uploaded to {address}')
