# One image for every role: `docker run … worker app:wf`, `… exporter`, `… start app:publish`, `… run show ID`.
# To run your own workflows, build on top of it (docs/kubernetes.md, "Your image"):
#
#     FROM redisworld
#     COPY app.py ./
#     CMD ["worker", "app:wf"]

ARG PYTHON=python:3.12-slim

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/redisworld
COPY pyproject.toml README.md LICENSE ./
COPY redisworld redisworld
COPY consumers consumers
# pip stays behind in this stage: the final environment holds what runs, and nothing that installs.
RUN /opt/build/bin/pip --python /opt/redisworld/bin/python install --compile .

FROM ${PYTHON}
COPY --from=build /opt/redisworld /opt/redisworld
ENV PATH=/opt/redisworld/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# The base's pip, where an image on top of this one uses it, installs beside redisworld.
ENV PIP_PYTHON=/opt/redisworld/bin/python
WORKDIR /app
# A number, not a name: Kubernetes checks runAsNonRoot against it. Nothing is written, so the root may be read-only.
USER 10001:10001
# Exec form, so that SIGTERM reaches the worker itself and it drains.
ENTRYPOINT ["redisworld"]
CMD ["--help"]
