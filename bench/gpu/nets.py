"""ResNet-50 with random weights over uint8 images, in single and half precision: the net of every figure of serving on a device."""

import copy
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIDE = 224
CLASSES = 1000
INPUT, OUTPUT = "image", "y"
BATCH = 64
PRECISIONS = ("fp32", "fp16")


def export(folder: Path) -> dict[str, Path]:
    """The ONNX files by precision, and the TorchScript archive as `torchscript`; made where they are missing."""
    paths = {"fp32": folder / "r32.onnx", "fp16": folder / "r16.onnx", "torchscript": folder / "r32.pt"}
    if all(path.exists() for path in paths.values()):
        return paths
    import torch
    import torchvision

    class Uint8(torch.nn.Module):
        """The net behind the conversion of whole numbers from 0 to 255."""

        def __init__(self, net: torch.nn.Module, dtype: torch.dtype) -> None:
            super().__init__()
            self.net = net
            self.dtype = dtype

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            """[N, 224, 224, 3] uint8 to [N, 1000] float32."""
            found: torch.Tensor = self.net(image.to(self.dtype).permute(0, 3, 1, 2) / 255.0).float()
            return found

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    net = torchvision.models.resnet50(weights=None).eval()
    single, half = Uint8(net, torch.float32).eval(), Uint8(copy.deepcopy(net).half(), torch.float16).cuda().eval()
    image = torch.from_numpy(images(2))
    axes = {INPUT: {0: "n"}, OUTPUT: {0: "n"}}
    for module, name, sample in ((single, "fp32", image), (half, "fp16", image.cuda())):
        torch.onnx.export(
            module, (sample,), str(paths[name]), input_names=[INPUT], output_names=[OUTPUT], dynamic_axes=axes, dynamo=False
        )
    torch.jit.trace(single, (image,)).save(str(paths["torchscript"]))
    return paths


def images(rows: int, seed: int = 0) -> NDArray[np.uint8]:
    """[rows, 224, 224, 3], the same each time."""
    return np.random.default_rng(seed).integers(0, 255, (rows, SIDE, SIDE, 3), dtype=np.uint8)
