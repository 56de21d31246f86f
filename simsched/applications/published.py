"""Published facts: the six applications of Pollux beyond their measurements, and models described by their tensors.

Sources: Qiao et al., "Pollux", OSDI'21, Table 1, and the artifact published with it (petuum/adaptdl, branch
osdi21-artifact, Apache-2.0); for the tensors the file `workloads/models/tiresias-models.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from simsched.applications.file_sections import Count, NotNegative, Positive
from simsched.documents import Section, read_section
from simsched.model.measured import Bounds
from simsched.model.tensors import TensorModel
from simsched.paths import data_folder

SOURCE = "Pollux (Qiao et al., OSDI'21), Table 1 and the published artifact (petuum/adaptdl, branch osdi21-artifact)"


@dataclass(frozen=True)
class LossMetric:
    """Converts the metric recorded after every epoch to a loss: `scale` times it, plus `offset`.

    `loss` describes it. `start` is the loss before training, i.e. of guessing, which is not measured; None if unknown,
    when the first epoch is assumed to lower the loss by the same factor as the second.
    """

    loss: str
    scale: float
    offset: float
    start: float | None


@dataclass(frozen=True)
class PublishedApplication:
    """A row of Table 1: the training task, how its learning rate follows the batch, and its size.

    `size` is the class of GPU-time: S below 1 GPU-hour, M below 10, L below 100, XL above.
    """

    title: str
    dataset: str
    model: str
    optimizer: str
    learning_rate_rule: Literal["adascale", "square-root"]
    target: str
    size: Literal["S", "M", "L", "XL"]
    metric: LossMetric | None = None

    def described(self) -> dict[str, str]:
        """Return the data of Table 1 by the keys of an application's file."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "metric"}


_ACCURACY_OF_10 = LossMetric("1 - top-1 accuracy", -1.0, 1.0, 0.9)
_ACCURACY_OF_1000 = LossMetric("1 - top-1 accuracy", -1.0, 1.0, 0.999)
_F1 = LossMetric("1 - F1 score", -0.01, 1.0, 1.0)
_WORD_ERRORS = LossMetric("word error rate", 0.01, 0.0, 1.0)
_MISSES = LossMetric("1 - hit rate among 10 of 100", -1.0, 1.0, 0.9)
_VALIDATION_LOSS = LossMetric("validation loss", 1.0, 0.0, None)

#: Table 1, by the names of the folders of measurements.
_TABLE = {
    "bert": ("Question answering", "SQuAD", "BERT (fine-tuning)", "AdamW", "square-root", "88% F1 score", "M", _F1),
    "cifar10": ("Image classification", "CIFAR-10", "ResNet-18", "SGD", "adascale", "94% top-1 accuracy", "S",
                _ACCURACY_OF_10),
    "deepspeech2": ("Speech recognition", "CMU-ARCTIC", "DeepSpeech2", "SGD", "adascale", "25% word error rate", "M",
                    _WORD_ERRORS),
    "imagenet": ("Image classification", "ImageNet", "ResNet-50", "SGD", "adascale", "75% top-1 accuracy", "XL",
                 _ACCURACY_OF_1000),
    "ncf": ("Recommendation", "MovieLens", "NeuMF", "Adam", "square-root", "69% hit rate", "S", _MISSES),
    "yolov3": ("Object detection", "PASCAL-VOC", "YOLOv3", "SGD", "adascale", "84% mAP", "L", _VALIDATION_LOSS),
}  # fmt: skip
APPLICATIONS: Mapping[str, PublishedApplication] = MappingProxyType(
    {name: PublishedApplication(*row) for name, row in _TABLE.items()}  # type: ignore[arg-type]
)

#: Limits of the published runs, narrower than the measurements. YOLOv3 was measured with up to 16 images per GPU but
#: run with at most 8; NeuMF never adapts: one GPU, a batch of 32768 (artifact, benchmark and simulator alike).
POLLUX: Mapping[str, Bounds] = MappingProxyType(
    {"ncf": Bounds(fixed_batch_size=32768, max_gpus=1), "yolov3": Bounds(max_local_bsz=8)}
)

#: Published bounds by the name that an experiment gives; a folder's name never selects any.
POLLUX_BOUNDS = "pollux-osdi21"
BOUNDS: Mapping[str, Mapping[str, Bounds]] = MappingProxyType({POLLUX_BOUNDS: POLLUX})


class ModelSection(Section):
    """A model: megabytes of all tensors and of the largest, costs in seconds, and its slow-down when spread."""

    name: str = Field(min_length=1)
    size_mb: Positive
    largest_mb: Positive
    checkpoint_s: NotNegative
    resume_s: NotNegative
    spread_penalty: NotNegative


class ModelsDocument(Section):
    """The file of the table."""

    source: str = ""
    gpus_per_node: Count = Field(description="GPUs per node when the durations were measured")
    models: Annotated[list[ModelSection], Field(min_length=1)]


def models_file() -> Path:
    """Return the path of the shipped table."""
    return data_folder("workloads") / "models" / "tiresias-models.yaml"


@lru_cache(maxsize=1)
def shipped_models() -> Mapping[str, TensorModel]:
    """Read the shipped table, by name of the model."""
    return read_models(models_file())


def read_models(path: Path) -> Mapping[str, TensorModel]:
    """Read a table of models; raises `InputError` with every problem by line."""
    table = read_section(path, ModelsDocument)
    return MappingProxyType(
        {one.name: TensorModel(**one.model_dump(), gpus_per_node=table.gpus_per_node) for one in table.models}
    )
