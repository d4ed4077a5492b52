# The agent alone, for nodes where software comes as containers: docs/install.md, "As a container".
FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build hatchling \
    && python -m build --wheel --no-isolation --outdir /wheel \
    && python deploy/agent_requirements.py pyproject.toml requirements.lock > /wheel/agent.lock

FROM python:3.12-slim
COPY --from=build /wheel /wheel
RUN pip install --no-cache-dir --require-hashes --requirement /wheel/agent.lock \
    && pip install --no-cache-dir --no-deps /wheel/gpuwarden-*.whl \
    && rm -r /wheel
RUN useradd --system --home-dir /var/lib/gpuwarden-agent --create-home gpuwarden-agent \
    && install --directory --owner=gpuwarden-agent /run/gpuwarden
USER gpuwarden-agent
WORKDIR /var/lib/gpuwarden-agent
# The NVIDIA container runtime adds the driver's library (utility) and the devices.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility
ENV GPUWARDEN_AGENT_SPOOL_FOLDER=/var/lib/gpuwarden-agent
VOLUME /var/lib/gpuwarden-agent
ENTRYPOINT ["gpuwarden-agent"]
CMD ["run"]
