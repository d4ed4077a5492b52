"""Finds and loads the promoted models; one that cannot be trusted is not used, and said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.fusion import FusionModel, FusionModels, ModelError, decode_model
from gpuwarden_verdict.fusion.artifact import MANIFEST, Manifest
from gpuwarden_wire.metrics import EntityKind

PROMOTED = "PROMOTED"
LARGEST_FILE_BYTES = 64 << 20
"""A model of ours has about 1 MB; a file larger than this is not one."""


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """The outcome of loading.

    Attributes:
        models: By whom they score; rules alone judge a kind without one.
        troubles: Why a kind has none and what to do, by kind; nothing of a kind that nobody gave a
            model for.
    """

    models: FusionModels
    troubles: Mapping[EntityKind, str]

    @property
    def version(self) -> str:
        """Versions of all models, "" for none."""
        return ", ".join(model.version for model in self.models.values())

    @property
    def trouble(self) -> str:
        """All troubles in one sentence, "" for none."""
        return "; ".join(dict.fromkeys(self.troubles.values()))


def default_folder() -> Path:
    """Shipped artifacts: inside the installed package, else in the checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_artifacts"
    return installed if installed.is_dir() else package.parent.parent / "models" / "artifacts"


def load_models(folder: Path | None) -> LoadedModels:
    """The models of a folder.

    Args:
        folder: One that has a folder a kind (gpu, node, nic) with its PROMOTED version; one of
            these; or one version's own. None for the shipped ones.
    """
    place = folder if folder is not None else default_folder()
    models: dict[EntityKind, FusionModel] = {}
    troubles: dict[EntityKind, str] = {}
    for kind in FEATURE_SETS:
        try:
            home = promoted_home(place, kind)
            if home is not None:
                models[kind] = decode_model(read_files(home), kind)
        except (ModelError, OSError) as error:
            troubles[kind] = said(error)
    if not models and not troubles:
        troubles[EntityKind.GPU] = no_model_in(place)
    return LoadedModels(models, troubles)


def promoted_home(place: Path, kind: EntityKind) -> Path | None:
    """Folder of the version that a folder of models names for a kind; None where it names none.

    Raises:
        ModelError: It names no version.
        OSError: It cannot be read.
    """
    if any((place / one.value / PROMOTED).is_file() for one in FEATURE_SETS):
        named = (place / kind.value / PROMOTED).is_file()
        return promoted_version(place / kind.value) if named else None
    if (place / MANIFEST).is_file():
        home = place
    elif (place / PROMOTED).is_file():
        home = promoted_version(place)
    else:
        return None
    manifest = manifest_in(home)
    # One that cannot be read is the GPUs': theirs is the model that most have.
    whose = EntityKind.GPU.value if manifest is None else manifest.kind
    return home if whose == kind.value else None


def manifest_in(home: Path) -> Manifest | None:
    """The manifest of a version's folder, None where there is none that can be read."""
    try:
        return msgspec.json.decode((home / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None


def no_model_in(place: Path) -> str:
    """What is said of a folder that names no model."""
    return (
        f"no model in {place}: set GPUWARDEN_MODEL_FOLDER to a folder of models, or train"
        " some with `gpuwarden train`"
    )


def promoted_version(home: Path) -> Path:
    """Folder of the version that a kind's PROMOTED names.

    Raises:
        ModelError: It names no version.
        OSError: It cannot be read.
    """
    named = home / PROMOTED
    version = named.read_text(encoding="utf-8").strip()
    if not version or Path(version).name != version:
        raise ModelError(f"{named}: {version!r} is not the name of a version; correct it")
    return home / version


def read_files(home: Path) -> dict[str, bytes]:
    """The files of one version's folder by name, unchecked.

    Raises:
        ModelError: One is too large to be a model's.
        OSError: It cannot be read.
    """
    files: dict[str, bytes] = {}
    for path in sorted(home.iterdir()):
        if not path.is_file():
            continue
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise ModelError(f"{path} is larger than {LARGEST_FILE_BYTES} bytes: not a model")
        files[path.name] = path.read_bytes()
    return files


def said(error: ModelError | OSError) -> str:
    """What is said of a model that is not used."""
    if isinstance(error, ModelError):
        return str(error)
    return (
        f"the model cannot be read ({error}): set GPUWARDEN_MODEL_FOLDER to a folder of models, or"
        " train some with `gpuwarden train`"
    )
