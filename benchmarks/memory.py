"""How much memory a step needs: the life of every storage that it makes, followed operator by operator."""

import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Peak", "peak_memory"]

Step = Callable[[], object]


class Peak(NamedTuple):
    """The most bytes that a step holds at once, beyond what was there before it.

    Attributes:
        total: Of everything that it makes, gradients of parameters included.
        activations: Without those gradients: what is kept for the backward pass, and what passes through.
        makers: Bytes of ``activations`` by the operator that made them, most first.
    """

    total: int
    activations: int
    makers: dict[str, int]


def peak_memory(step: Step, parameters: Iterable[Tensor] = ()) -> Peak:
    """Run a step and return its peaks of memory in bytes.

    Storages are counted from the operator that made them until they are freed, each once however many views it has.
    What existed before the step is not counted, so run the step once or twice beforehand: optimisers make their state
    in the first. Memory that an operator uses and frees inside itself is not seen, but for ``total`` on an accelerator
    whose allocator reports its peak.

    Args:
        step: Is called once. Gradients of the step before are to be freed at its start (``zero_grad()``).
        parameters: Whose gradients are no activations, such as ``model.parameters()``.

    Example:
        >>> x = torch.zeros(256)
        >>> peak_memory(lambda: (x + 1).relu() + 2)  # 1 KiB each: the sum, its ReLU; then the ReLU, the second sum
        Peak(total=2048, activations=2048, makers={'aten::add': 1024, 'aten::relu': 1024})
    """
    parameters = list(parameters)
    device = next((p.device for p in parameters if p.device.type != "cpu"), None)
    allocator: Any = None if device is None else torch.get_device_module(device)
    reports = hasattr(allocator, "max_memory_allocated")
    if reports:
        allocator.synchronize()
        allocator.reset_peak_memory_stats()
    storages = _Storages()
    with storages:
        step()
    grads = [p.grad.untyped_storage() for p in parameters if p.grad is not None]
    kept = {storages.numbers[grad._cdata] for grad in grads if grad._cdata in storages.numbers}
    total = sum(storages.at_peak().values())
    if reports:
        allocator.synchronize()
        resting = allocator.memory_allocated() - sum(grad.nbytes() for grad in grads)
        total = allocator.max_memory_allocated() - resting
    makers = storages.at_peak(without=kept)
    return Peak(total, sum(makers.values()), makers)


class _Storages(TorchDispatchMode):
    """Notes when storages are made and freed, without keeping them alive.

    Attributes:
        events: In order of time, a storage's number and the bytes that it takes or gives back.
        makers: Of the storages, by number: the operator that made each.
        numbers: Of the storages that are alive, by address; None for those that were there before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[int, int]] = []
        self.makers: dict[int, str] = {}
        self.numbers: dict[int, int | None] = {}
        self.finalizers: dict[int, weakref.finalize[..., Any]] = {}

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for finalizer in self.finalizers.values():
            finalizer.detach()  # parameters would keep this object for as long as they live

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._meet((args, kwargs), None)
        outputs = func(*args, **kwargs)
        self._meet(outputs, func._schema.name)
        return outputs

    def _meet(self, values: Any, maker: str | None) -> None:
        for tensor in tree_leaves(values):
            if not isinstance(tensor, Tensor):
                continue
            storage = None
            with suppress(NotImplementedError):  # sparse tensors and the like have none of their own
                storage = tensor.untyped_storage()
            if storage is not None and storage._cdata not in self.numbers:
                self._follow(storage, maker)

    def _follow(self, storage: torch.UntypedStorage, maker: str | None) -> None:
        address, number = storage._cdata, None if maker is None else len(self.events)
        self.numbers[address] = number
        size = storage.nbytes()
        if maker is not None and number is not None:
            self.events.append((number, size))
            self.makers[number] = maker
        # Called when torch frees the storage: its Python object lives as long as it does.
        self.finalizers[address] = weakref.finalize(storage, self._forget, address, number, size)

    def _forget(self, address: int, number: int | None, size: int) -> None:
        del self.numbers[address], self.finalizers[address]  # the next storage may get the same address
        if number is not None:
            self.events.append((number, -size))

    def at_peak(self, without: Collection[int | None] = ()) -> dict[str, int]:
        """Return the bytes held when they were most, by the operator that made them, leaving some storages out."""
        held = highest = 0
        alive: dict[int, int] = {}
        at_highest: dict[int, int] = {}
        for number, change in self.events:
            if number in without:
                continue
            held += change
            alive[number] = alive.get(number, 0) + change
            if held > highest:
                highest, at_highest = held, dict(alive)
        makers: Counter[str] = Counter()
        for number, size in at_highest.items():
            makers[self.makers[number]] += size
        return {maker: size for maker, size in makers.most_common() if size}
