# A trial of xlflax on a CPU: the demonstration, and every command.
#
#   docker build -t xlflax .
#   docker run --rm -v "$PWD:/xlflax" xlflax                      # the demonstration
#   docker run --rm -v "$PWD:/xlflax" xlflax xlflax tasks list
#
# Images for GPUs and TPUs, with pinned packages: launch/docker.
FROM python:3.11-slim-bookworm

WORKDIR /opt/source
COPY setup.py pyproject.toml README.md ./
COPY gin_configs gin_configs
COPY tasks tasks
COPY xlflax xlflax
RUN pip install --no-cache-dir . && rm -rf /opt/source

ENV JAX_PLATFORMS=cpu \
    PYTHONUNBUFFERED=1 \
    XLFLAX_COMPILATION_CACHE=/xlflax/.xlflax_compilation
RUN useradd --uid 1000 --create-home xlflax && install -d -o xlflax /xlflax
USER 1000
WORKDIR /xlflax
# `xlflax` is process 1, so Ctrl-C reaches it: training saves first.
CMD ["xlflax", "demo"]
