# The services of rolloutlog: core, [import] and [s3], everything from the hashed locks. No torch, no Java.
#   docker build --target services -t rolloutlog .
FROM python:3.11-slim AS build
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements/build.txt requirements/services.txt requirements/
RUN python -m venv /opt/rolloutlog \
 && /opt/rolloutlog/bin/pip install --require-hashes -r requirements/services.txt \
 && python -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes -r requirements/build.txt
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
