"""Finds and loads the promoted model; a model that cannot be trusted is not used, and said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpuwarden_verdict.fusion import FusionModel, ModelError, decode_model
from gpuwarden_verdict.fusion.artifact import MANIFEST

KIND = "gpu"
PROMOTED = "PROMOTED"
LARGEST_FILE_BYTES = 64 << 20
"""A model of ours has about 1 MB; a file larger than this is not one."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The outcome of loading.

    Attributes:
        model: None where rules judge alone.
        trouble: Why, and what to do; "" where a model is loaded.
    """

    model: FusionModel | None
    trouble: str


def default_folder() -> Path:
    """Shipped artifacts: inside the installed package, else in the checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_artifacts"
    return installed if installed.is_dir() else package.parent.parent / "models" / "artifacts"


def load_model(folder: Path | None) -> LoadedModel:
    """The model of a folder.

    Args:
        folder: A model's own folder, or one that names the promoted version (PROMOTED, or
            gpu/PROMOTED); None for the shipped one.
    """
    try:
        home = _model_home(folder if folder is not None else default_folder())
        return LoadedModel(decode_model(_files(home)), "")
    except ModelError as error:
        return LoadedModel(None, str(error))
    except OSError as error:
        return LoadedModel(
            None,
            f"the model cannot be read ({error}): set GPUWARDEN_MODEL_FOLDER to a model's folder, "
            "or train one with `gpuwarden train`",
        )


def _model_home(folder: Path) -> Path:
    if (folder / MANIFEST).is_file():
        return folder
    for place in (folder, folder / KIND):
        named = place / PROMOTED
        if named.is_file():
            version = named.read_text(encoding="utf-8").strip()
            if not version or Path(version).name != version:
                raise ModelError(f"{named}: {version!r} is not the name of a version; correct it")
            return place / version
    raise ModelError(
        f"no model in {folder}: set GPUWARDEN_MODEL_FOLDER to a model's folder, or train one with "
        "`gpuwarden train`"
    )


def _files(home: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for path in sorted(home.iterdir()):
        if not path.is_file():
            continue
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise ModelError(f"{path} is larger than {LARGEST_FILE_BYTES} bytes: not a model")
        files[path.name] = path.read_bytes()
    return files
