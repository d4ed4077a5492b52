"""Names of the collectors that read exporters."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

NVIDIA_SMI = "nvidia_smi"
_PREFIX = "exporter_"
_HTTPS_PORT, _HTTP_PORT = 443, 80


def is_exporter(collector: str) -> bool:
    """The collector tells what another program has read: an exporter, or nvidia-smi."""
    return collector.startswith(_PREFIX) or collector == NVIDIA_SMI


def exporter_names(urls: Sequence[str]) -> list[str]:
    """A name for each address, after its port: "exporter_9400", "exporter_9400_2"."""
    names: list[str] = []
    for url in urls:
        parts = urlsplit(url)
        port = parts.port or (_HTTPS_PORT if parts.scheme == "https" else _HTTP_PORT)
        name = f"{_PREFIX}{port}"
        same = sum(one == name or one.startswith(f"{name}_") for one in names)
        names.append(f"{name}_{same + 1}" if same else name)
    return names
