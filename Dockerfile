# The services of rolloutlog: core, [import] and [s3], everything from the hashed locks. No torch, no Java.
#   docker build --target services -t rolloutlog .
# With torch, for workers and a trainer that have a model; TORCH as in the Makefile: pinned, cpu for PyTorch's own CPU build, or
# none, which leaves torch and safetensors to you.
#   docker build --target live --build-arg TORCH=cpu -t rolloutlog-live .
FROM python:3.11-slim AS locked
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements/build.txt requirements/services.txt requirements/
RUN python -m venv /opt/rolloutlog \
 && /opt/rolloutlog/bin/pip install --require-hashes -r requirements/services.txt \
 && python -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes -r requirements/build.txt

FROM locked AS build
# rolloutlog/ holds links to the four rooms beside it, so all five are copied as they stand
COPY pyproject.toml README.md LICENSE ./
COPY producers producers
COPY consumers consumers
COPY buffer buffer
COPY trainer trainer
COPY rolloutlog rolloutlog
RUN /opt/build/bin/hatchling build -t wheel -d /wheel \
 && /opt/rolloutlog/bin/pip install --no-deps --no-index /wheel/*.whl \
 && /opt/rolloutlog/bin/python -m pip uninstall -q -y pip setuptools

# Beside the source, not above it: gigabytes that a change of the source leaves as they are.
FROM locked AS torch
ARG TORCH=pinned
COPY requirements/uv.txt requirements/torch.txt requirements/dev.txt requirements/
RUN if [ "$TORCH" != none ]; then /opt/build/bin/pip install --require-hashes -r requirements/uv.txt \
 && if [ "$TORCH" = pinned ]; then BACKEND= LIST="--require-hashes -r requirements/torch.txt"; \
    else BACKEND="--torch-backend $TORCH" LIST="$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements/torch.txt)"; fi \
 && UV_SYSTEM_CERTS=true /opt/build/bin/uv pip install --no-cache --compile-bytecode --python /opt/rolloutlog/bin/python $BACKEND $LIST \
 && UV_SYSTEM_CERTS=true /opt/build/bin/uv pip install --no-cache --python /opt/rolloutlog/bin/python --no-deps \
    "$(sed -n 's/^\(safetensors==[^ ]*\).*/\1/p' requirements/dev.txt)"; fi \
 && /opt/rolloutlog/bin/python -m pip uninstall -q -y pip

FROM python:3.11-slim AS live
# Volumes mounted on these folders take over their owner.
RUN useradd --system --uid 10001 --home-dir /var/lib/rolloutlog --create-home rolloutlog \
 && install -d -o rolloutlog -g rolloutlog /var/lib/rolloutlog/blobs /var/lib/rolloutlog/run
COPY --from=torch /opt/rolloutlog /opt/rolloutlog
COPY --from=build /opt/rolloutlog /opt/rolloutlog
ENV PATH=/opt/rolloutlog/bin:$PATH PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
USER rolloutlog
WORKDIR /var/lib/rolloutlog
ENTRYPOINT ["rolloutlog"]
CMD ["--help"]

FROM python:3.11-slim AS services
# A volume mounted on the folder of blobs takes over its owner.
RUN useradd --system --uid 10001 --home-dir /var/lib/rolloutlog --create-home rolloutlog \
 && install -d -o rolloutlog -g rolloutlog /var/lib/rolloutlog/blobs
COPY --from=build /opt/rolloutlog /opt/rolloutlog
COPY producers/importing/demo_run /recorded-run
ENV PATH=/opt/rolloutlog/bin:$PATH PYTHONUNBUFFERED=1
USER rolloutlog
WORKDIR /var/lib/rolloutlog
ENTRYPOINT ["rolloutlog"]
CMD ["--help"]
