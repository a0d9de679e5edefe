"""The flags of Gin: `--gin_file`, `--gin.NAME=VALUE`, `--gin_search_paths`."""

FLAGS = """
[configuration (Gin)]
--gin_file FILE (repeated): gin file; repeat for several, later ones override
  earlier ones
--gin_search_paths DIR (repeated): folder to look gin files up in
  (comma-separated or repeated)
--gin.NAME=VALUE (switch, as gin_binding_help): override a binding, such as
  --gin.TRAIN_STEPS=1000
[]
"""  # bindings themselves: `xlflax.configuration.bindings`
