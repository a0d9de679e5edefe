# Image for trying xlflax on a CPU. By default, it runs `xlflax demo`.
#
#   docker build -t xlflax .
#   docker run --rm -v "$PWD:/xlflax" xlflax
#   docker run --rm -v "$PWD:/xlflax" xlflax xlflax tasks list
#
# The packages have the versions and hashes in requirements/cpu.lock, and the base
# image is pinned by its digest. launch/docker/ contains the images for GPUs and
# TPUs.
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

WORKDIR /opt/source
COPY setup.py pyproject.toml README.md ./
COPY requirements requirements
COPY launch/docker/install.sh launch/docker/install.sh
COPY gin_configs gin_configs
COPY launch/templates launch/templates
COPY tasks tasks
COPY xlflax xlflax
RUN launch/docker/install.sh cpu /opt/xlflax && rm -rf /opt/source

ENV PATH=/opt/xlflax/bin:$PATH \
    JAX_PLATFORMS=cpu \
    PYTHONUNBUFFERED=1 \
    XLFLAX_COMPILATION_CACHE=/xlflax/.xlflax_compilation
RUN useradd --uid 1000 --create-home xlflax && install -d -o xlflax /xlflax
USER 1000
WORKDIR /xlflax
# `xlflax` is process 1, so it receives Ctrl-C and saves a checkpoint.
CMD ["xlflax", "demo"]
