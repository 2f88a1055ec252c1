# One image for every role: `docker run … worker app:wf`, `… start app:publish`, `… run show ID`.
# To run your own workflows, build on top of it:
#
#     FROM redisworld
#     COPY app.py /app/
#     CMD ["worker", "app:wf"]

FROM python:3.12-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY redisworld redisworld
COPY consumers consumers
RUN pip wheel --no-deps --wheel-dir /wheels . \
 && python -m venv /opt/redisworld \
 && /opt/redisworld/bin/pip install /wheels/*.whl

FROM python:3.12-slim
COPY --from=build /opt/redisworld /opt/redisworld
ENV PATH=/opt/redisworld/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A number, not a name: Kubernetes checks runAsNonRoot against it. The process writes no files.
USER 10001:10001
WORKDIR /app
# Exec form, so that SIGTERM reaches the worker itself and it drains.
ENTRYPOINT ["redisworld"]
CMD ["--help"]
