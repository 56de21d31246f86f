"""What is published about the six applications of Pollux beyond their measurements.

Source: Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI'21, Table 1, and
the artifact published with it (petuum/adaptdl, branch osdi21-artifact, Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from simsched.model.measured import Bounds

SOURCE = "Pollux (Qiao et al., OSDI'21), Table 1 and the published artifact (petuum/adaptdl, branch osdi21-artifact)"


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


APPLICATIONS: Mapping[str, PublishedApplication] = MappingProxyType(
    {
        "bert": PublishedApplication(
            "Question answering", "SQuAD", "BERT (fine-tuning)", "AdamW", "square-root", "88% F1 score", "M"
        ),
        "cifar10": PublishedApplication(
            "Image classification", "CIFAR-10", "ResNet-18", "SGD", "adascale", "94% top-1 accuracy", "S"
        ),
        "deepspeech2": PublishedApplication(
            "Speech recognition", "CMU-ARCTIC", "DeepSpeech2", "SGD", "adascale", "25% word error rate", "M"
        ),
        "imagenet": PublishedApplication(
            "Image classification", "ImageNet", "ResNet-50", "SGD", "adascale", "75% top-1 accuracy", "XL"
        ),
        "ncf": PublishedApplication("Recommendation", "MovieLens", "NeuMF", "Adam", "square-root", "69% hit rate", "S"),
        "yolov3": PublishedApplication("Object detection", "PASCAL-VOC", "YOLOv3", "SGD", "adascale", "84% mAP", "L"),
    }
)

#: Limits that the published runs kept although the measurements go further. YOLOv3 was measured with up to 16 images a
#: GPU but run with at most 8; NeuMF never adapts: one GPU, a batch of 32768 (artifact, benchmark and simulator alike).
POLLUX: Mapping[str, Bounds] = MappingProxyType(
    {
        "ncf": Bounds(fixed_batch_size=32768, max_gpus=1),
        "yolov3": Bounds(max_local_bsz=8),
    }
)

#: Published bounds by the name under which an experiment asks for them; no folder gets any because of its own name.
POLLUX_BOUNDS = "pollux-osdi21"
BOUNDS: Mapping[str, Mapping[str, Bounds]] = MappingProxyType({POLLUX_BOUNDS: POLLUX})
