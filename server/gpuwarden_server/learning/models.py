"""Finds and loads the promoted models; one that cannot be trusted is not used, and said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.fusion import FusionModel, FusionModels, ModelError, decode_model
from gpuwarden_verdict.fusion.artifact import MANIFEST
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
    homes = {kind: place / kind.value for kind in FEATURE_SETS}
    homes = {kind: home for kind, home in homes.items() if (home / PROMOTED).is_file()}
    if not homes:
        return _single(place)
    models: dict[EntityKind, FusionModel] = {}
    troubles: dict[EntityKind, str] = {}
    for kind, home in homes.items():
        try:
            models[kind] = read_version(promoted_version(home), kind)
        except (ModelError, OSError) as error:
            troubles[kind] = _said(error)
    return LoadedModels(models, troubles)


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


def read_version(home: Path, kind: EntityKind | None = None) -> FusionModel:
    """The model of one version's folder.

    Args:
        home: The folder.
        kind: Whom it must score; None for whomever it says.

    Raises:
        ModelError: It must not be used; the message says why and what to do.
        OSError: It cannot be read.
    """
    files: dict[str, bytes] = {}
    for path in sorted(home.iterdir()):
        if not path.is_file():
            continue
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise ModelError(f"{path} is larger than {LARGEST_FILE_BYTES} bytes: not a model")
        files[path.name] = path.read_bytes()
    return decode_model(files, kind)


def _single(place: Path) -> LoadedModels:
    """The one model of a kind's folder, or of a version's own."""
    try:
        if (place / MANIFEST).is_file():
            model = read_version(place)
        elif (place / PROMOTED).is_file():
            model = read_version(promoted_version(place))
        else:
            raise ModelError(
                f"no model in {place}: set GPUWARDEN_MODEL_FOLDER to a folder of models, or train"
                " some with `gpuwarden train`"
            )
    except (ModelError, OSError) as error:
        return LoadedModels({}, {EntityKind.GPU: _said(error)})
    return LoadedModels({model.kind: model}, {})


def _said(error: ModelError | OSError) -> str:
    if isinstance(error, ModelError):
        return str(error)
    return (
        f"the model cannot be read ({error}): set GPUWARDEN_MODEL_FOLDER to a folder of models, or"
        " train some with `gpuwarden train`"
    )
