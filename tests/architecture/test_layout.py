from __future__ import annotations

import ast
import subprocess

from tests.architecture.tree import ROOT, SOURCE_ROOTS, Module, imported, modules

QUERY_WORDS = {"select", "insert", "update", "delete"}


def test_source_roots_hold_packages_only() -> None:
    assert [root for root in SOURCE_ROOTS if (ROOT / root / "__init__.py").exists()] == []


def test_every_package_is_typed() -> None:
    packages = [p for root in SOURCE_ROOTS for p in (ROOT / root).glob("gpuwarden_*") if p.is_dir()]
    assert [str(p.relative_to(ROOT)) for p in packages if not (p / "py.typed").exists()] == []


def test_no_module_is_empty_and_undocumented() -> None:
    blank = [m.name for m in modules() if not ast.get_docstring(m.tree)]
    assert blank == []


def test_only_the_sources_touch_pynvml() -> None:
    assert _importers("pynvml", allowed="agent/gpuwarden_agent/sources/") == []


def test_only_config_reads_the_environment() -> None:
    readers = [
        module.name
        for module in modules()
        if module.path.name != "config.py" and _reads_environment(module)
    ]
    assert readers == []


def test_only_repositories_and_the_store_query() -> None:
    queriers = [
        module.name
        for module in modules()
        if "gpuwarden_server" in module.name
        and "/store/" not in module.name
        and module.path.name != "repository.py"
        and _imports_query_words(module)
    ]
    assert queriers == []


def test_the_committed_files_name_no_package_index() -> None:
    listed = subprocess.run(
        ["git", "grep", "-lE", r"(pypi\.org|files\.pythonhosted|registry\.npmjs|--index-url)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    named = [name for name in listed.stdout.split() if name != "tests/architecture/test_layout.py"]
    assert named == []


def _importers(package: str, allowed: str) -> list[str]:
    return [
        module.name
        for module in modules()
        if not module.name.startswith(allowed)
        and any(name == package or name.startswith(package + ".") for name in imported(module))
    ]


def _reads_environment(module: Module) -> bool:
    """True where the module looks a variable up; handing all of it to a child does not count."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr == "getenv":
            return True
        looked_up = isinstance(node, ast.Subscript) or (
            isinstance(node, ast.Attribute) and node.attr == "get"
        )
        if looked_up and "os.environ" in ast.unparse(node.value):  # type: ignore[attr-defined]  # both kinds have it
            return True
    return False


def _imports_query_words(module: Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("sqlalchemy")
        and QUERY_WORDS & {alias.name for alias in node.names}
        for node in ast.walk(module.tree)
    )
