from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from gpuwarden_agent.config import (
    PREFIX,
    AgentSettings,
    ConfigError,
    load_settings,
    setting_docs,
)
from gpuwarden_agent.setting_values import ExporterAddress
from gpuwarden_agent.transport.key import KeySource, KeyUnavailable


def test_defaults_hold_where_nothing_is_set() -> None:
    settings = load_settings({"PATH": "/bin"}, {})
    assert settings.interval_s == 5.0
    assert settings.verdict_file == Path("/run/gpuwarden/verdict.json")
    assert settings.metrics_port == 0
    assert settings.nvml
    assert settings.gpus_expected is None


def test_a_flag_overrides_the_environment() -> None:
    environ = {f"{PREFIX}INTERVAL_S": "10", f"{PREFIX}NODE_ID": "gpu-1"}
    settings = load_settings(environ, {"interval_s": "1"})
    assert (settings.interval_s, settings.node_id) == (1.0, "gpu-1")


BAD_VALUES = [
    ("INTERVAL_S", "fast", "INTERVAL_S='fast'"),
    ("INTERVAL_S", "0", "0.05 to 86400"),
    ("INTERVAL_S", "nan", "0.05 to 86400"),
    ("METRICS_PORT", "70000", "0 to 65535"),
    ("SPOOL_CAP_BYTES", "10", "at least 65536"),
    ("SERVER_URL", "gpuwarden:8750", "https://"),
    ("SERVER_URL", "http://host:port", "SERVER_URL"),
    ("NVML", "maybe", "on or off"),
    ("GPUS_EXPECTED", "-1", "0 to 1024"),
    ("NODE_ID", "rack 1/node", "letters, digits"),
    ("LOG_LEVEL", "loud", "debug, info"),
    ("SPOOL_FOLDER", " ", "give a path"),
    ("CLIENT_CERT_FILE", "/etc/c.pem", "belong together"),
    ("EXPORTERS", "gpu=http://127.0.0.1:9400", "auto, dcgm, nvidia_smi, node, all_smi"),
    ("EXPORTERS", "127.0.0.1:9400", "dcgm=http://"),
    ("EXPORTERS", "dcgm=", "dcgm=http://"),
    ("EXPORTER_CERT_FILE", "/etc/c.pem", "belong together"),
    ("KEY", "gw_…", "KEY=***: character 4 of the key is … (U+2026)"),
    ("KEY", "gw_a b", "gpuwarden keys create"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD_VALUES)
def test_a_value_that_cannot_be_used_is_named_with_the_mend(
    name: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({PREFIX + name: value}, {})
    assert message in str(caught.value)
    assert name in str(caught.value)


def test_exporters_with_and_without_kind_and_path() -> None:
    text = "http://127.0.0.1:9400, node=https://localhost:9100/metrics,http://[::1]:9835/m?a=b"
    settings = load_settings({f"{PREFIX}EXPORTERS": text}, {})
    assert settings.exporters == (
        ExporterAddress("http://127.0.0.1:9400/metrics"),
        ExporterAddress("https://localhost:9100/metrics", "node"),
        ExporterAddress("http://[::1]:9835/m?a=b"),
    )


def test_a_token_does_not_leave_the_node_unprotected() -> None:
    token = {f"{PREFIX}EXPORTER_TOKEN_FILE": "/t"}
    load_settings(token | {f"{PREFIX}EXPORTERS": "http://127.0.0.1:9400,https://other:9400"}, {})
    with pytest.raises(ConfigError, match="other unprotected"):
        load_settings(token | {f"{PREFIX}EXPORTERS": "http://other:9400"}, {})


def test_a_misspelt_variable_is_not_ignored() -> None:
    with pytest.raises(ConfigError, match="GPUWARDEN_AGENT_INTERVALS"):
        load_settings({f"{PREFIX}INTERVALS": "5"}, {})


def test_a_key_is_given_once_and_never_shown() -> None:
    with pytest.raises(ConfigError, match="keep one"):
        load_settings({f"{PREFIX}KEY": "gw_x", f"{PREFIX}KEY_FILE": "/k"}, {})
    assert "default" not in [doc.default for doc in setting_docs() if doc.name == "key"]


def test_a_key_file_with_what_is_no_key_is_named_with_the_mend(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("gw_…\n", encoding="utf-8")
    with pytest.raises(KeyUnavailable) as caught:
        KeySource("", file).current()
    assert "character 4 of the key is … (U+2026)" in str(caught.value)
    assert str(file) in str(caught.value)
    assert "gpuwarden keys create" in str(caught.value)


def test_every_setting_is_documented_and_names_its_unit() -> None:
    docs = {doc.name: doc for doc in setting_docs()}
    assert set(docs) == {one.name for one in fields(AgentSettings)}
    for name, doc in docs.items():
        assert len(doc.doc) > 15, name
        assert doc.doc.endswith("."), name
        assert doc.variable == PREFIX + name.upper()
        if name.endswith("_s"):
            assert "second" in doc.doc.lower(), name
        if name.endswith("_bytes"):
            assert "byte" in doc.doc, name
