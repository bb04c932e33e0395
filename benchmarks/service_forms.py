"""The forms in which a module can be served: as it is, compiled, exported, in ONNX Runtime."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import slimbayes as sb

__all__ = ["FORMS", "MODULES", "Form", "PerExample", "Plain", "Request", "Served", "build_modules"]


class Plain(nn.Module):
    """A plain network's class probabilities, in evaluation mode.

    Shape:
        - Input: the network's. Output: ``(batch, classes)``.
    """

    random = False
    draws = 1

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        return self.net(x).softmax(-1)


class Served(nn.Module):
    """A model with one draw of its random parts held as buffers: the same answer to the same question.

    Args:
        model: A model of classes; it is put into evaluation mode.
        draw: From ``model.draw``.

    Shape:
        - Input: the network's. Output: ``(batch, classes)``, the mixture of the draws.

    Example:
        >>> model = sb.rank1(nn.Linear(8, 3), members=4)
        >>> served, x = Served(model, model.draw()), torch.randn(5, 8)
        >>> served(x).shape, torch.equal(served(x), served(x))
        (torch.Size([5, 3]), True)
    """

    random = False

    def __init__(self, model: sb.BayesianModel, draw: dict[str, Tensor]) -> None:
        super().__init__()
        self.model = model
        self.eval()
        self.draws = next(iter(draw.values())).shape[0]
        self.names = {f"draw_{position}": name for position, name in enumerate(draw)}  # buffers' names have no dots
        for buffer, name in self.names.items():
            self.register_buffer(buffer, draw[name].detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        draw = {name: getattr(self, buffer) for buffer, name in self.names.items()}
        return self.model(x, draw=draw).softmax(-1).mean(0)


class PerExample(nn.Module):
    """A model that draws anew for each example of each request.

    Shape:
        - Input: the network's. Output: ``(batch, classes)``, the mixture of one draw of each member.
    """

    random = True

    def __init__(self, model: sb.BayesianModel) -> None:
        super().__init__()
        self.model = model
        self.draws = model.members
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        return self.model(x, noise="example").softmax(-1).mean(0)


#: In this order; the first is the baseline.
MODULES = ("plain", "rank1 held draw", "rank1 per example")


def build_modules(net: nn.Module, members: int) -> dict[str, Plain | Served | PerExample]:
    """Return what is served of one network, by its name in ``MODULES``.

    Example:
        >>> list(build_modules(nn.Linear(8, 3), members=4))
        ['plain', 'rank1 held draw', 'rank1 per example']
    """
    model = sb.rank1(net, members=members)
    with torch.no_grad():
        draw = model.draw()
    return dict(zip(MODULES, (Plain(net), Served(model, draw), PerExample(model)), strict=True))


#: From a batch of inputs to class probabilities.
Request = Callable[[Tensor], Tensor]
#: Makes a module ready: a module in evaluation mode, inputs of a batch that is not of size 1, a folder for files.
Form = Callable[[nn.Module, Tensor, Path], Request]


#: The compiler's own random numbers take longer than the rest of a small network.
_TORCH_NOISE: dict[str, Any] = {"fallback_random": True}


class NotApplicable(Exception):  # noqa: N818
    """The module has no such form, by its nature; there is nothing to report."""


def predict(module: nn.Module, x: Tensor, folder: Path) -> Request:
    """Return ``model.predict(x).probs``, with its checks and its bound on memory."""
    if not isinstance(module, PerExample):
        raise NotApplicable
    model = module.model
    return lambda x: model.predict(x, noise="example").probs


def eager(module: nn.Module, x: Tensor, folder: Path) -> Request:
    """Return the module's forward pass, operator by operator."""
    return _without_gradients(module)


def compiled(module: nn.Module, x: Tensor, folder: Path) -> Request:
    """Return the module compiled by torch.compile into one graph for all sizes of a batch (and one for size 1)."""
    request = _without_gradients(torch.compile(module, fullgraph=True, dynamic=True, options=_TORCH_NOISE))
    request(x)
    return request


def exported(module: nn.Module, x: Tensor, folder: Path) -> Request:
    """Return the module compiled ahead of time into a library that runs without Python."""
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    with torch.no_grad(), _quiet():
        program = torch.export.export(module, (x,), **_any_batch())
        path = str(folder / "module.pt2")
        package = aoti_compile_and_package(program, package_path=path, inductor_configs=_TORCH_NOISE)
        return _without_gradients(aoti_load_package(package))


def onnx_runtime(module: nn.Module, x: Tensor, folder: Path) -> Request:
    """Return the module in ONNX Runtime, on as many threads as torch has."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  (the exporter's)
    except ImportError as error:
        raise ImportError(
            "ONNX needs onnxruntime and onnxscript. Install: pip install onnx onnxruntime onnxscript"
        ) from error
    path = folder / "module.onnx"
    with torch.no_grad(), _quiet():
        shapes = _any_batch()["dynamic_shapes"]
        names: dict[str, Any] = {"input_names": ["x"], "output_names": ["probs"], "dynamic_shapes": shapes}
        torch.onnx.export(module, (x,), path, dynamo=True, verbose=False, **names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


#: By name.
FORMS: dict[str, Form] = {
    "predict": predict,
    "eager": eager,
    "compiled": compiled,
    "exported": exported,
    "onnx": onnx_runtime,
}


def _without_gradients(function: Callable[..., Tensor]) -> Request:
    @torch.no_grad()
    def request(x: Tensor) -> Tensor:
        return function(x)

    return request


def _any_batch() -> dict[str, Any]:
    # A batch of 1 would otherwise be refused: some strides of it could be read in two ways.
    return {
        "dynamic_shapes": ({0: torch.export.Dim("batch")},),
        "prefer_deferred_runtime_asserts_over_guards": True,
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what torch's exporters say about themselves and about packages that are not needed."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)  # errors are raised, too
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
