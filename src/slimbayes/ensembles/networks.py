"""Whole networks as draws: each group of rows goes through a network of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import PackedSequence

from slimbayes import batching
from slimbayes.ensembles._states import StateLayout
from slimbayes.ensembles._weight_posterior import WeightPosterior
from slimbayes.layers.base import BayesianLayer, Collects, Pick
from slimbayes.layers.transformer import without_fused_paths

__all__ = ["Networks"]

#: Runs the rows of one group.
Run = Callable[[int, Any, Any], Any]


class Turn(AbstractContextManager[None]):
    """Lets one thread at a time into a context; copies have turns of their own.

    Example:
        >>> turn = Turn()
        >>> with turn, turn:  # a thread may enter again
        ...     pass
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __enter__(self) -> None:
        """Wait for the others."""
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        """Let the others in."""
        self.lock.release()

    def __reduce__(self) -> Any:
        """Make a new one."""
        return Turn, ()


class Networks(BayesianLayer, Collects, nn.Module):
    """K networks, the members, and perhaps a posterior over their states.

    Without a posterior, a draw is a member itself (a deep ensemble). With one, the members are what trains, and draws
    are states from it (SWAG, a chain's samples); in training mode the members run, in evaluation their draws.

    Args:
        networks: The members; with a posterior, all of one architecture.
        posterior: The posterior, or None.
        vectorised: Run all draws in one pass of ``torch.func.vmap`` where the architecture allows; one by one where
            not, in training, and compiled. None for where it pays: not on a CPU, where one by one was measured faster.
    """

    def __init__(
        self, networks: Sequence[nn.Module], posterior: WeightPosterior | None = None, vectorised: bool | None = None
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.posterior = posterior
        self.register_load_state_dict_pre_hook(_name_posterior)
        self.vectorised = vectorised
        #: Held where a network's own weights are taken out of it for a while, so that it can run with others.
        self.turn = Turn()
        self.layout = StateLayout(networks[0])
        alike = all(_alike(networks[0], network) for network in networks[1:])
        if posterior is not None and not alike:
            raise ValueError(
                "Expected argument `networks` to be of one architecture, because a posterior is over states of one "
                "shape, but they differ. Make a model of each."
            )
        #: Set when a pass has shown that torch.func.vmap cannot run this architecture; it runs the first member's code.
        self.refuses_vmap = not alike or not all(_same_code(networks[0], network) for network in networks[1:])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run each group of rows through its network; inputs come as ``BatchAxis``, see ``batching.narrow``."""
        # Without a posterior, and one by one, networks run as they are.
        alone = (self.posterior is None and not self._vectorises(args, kwargs)) or torch.compiler.is_compiling()
        with nullcontext() if alone else self.turn:
            return self._run(args, kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the members' state, not what a draw that is running in another thread has put in its place."""
        with self.turn:
            return super().state_dict(*args, **kwargs)

    def _run(self, args: Any, kwargs: Any) -> Any:
        sampling = self.enter()
        rows, batch_dim = sampling.rows, sampling.batch_dim
        assert rows is not None
        states = self._states()
        # Draws of a graph, whose batch is one whole, run one by one: a network may mix all nodes that it sees.
        members = rows if batching.addresses_rows((args, kwargs)) else len(self.networks)
        groups = members if states is None else len(states)
        refused = False
        if groups > 1 and self._vectorises(args, kwargs):
            try:
                return self._at_once(self._stacked(states), groups, rows, args, kwargs)
            except (RuntimeError, NotImplementedError):  # no batching rule, or a branch on the data
                refused = True

        def run(group: int, args: Any, kwargs: Any) -> Any:
            network = self.networks[group * len(self.networks) // groups]
            if states is None:
                return network(*args, **kwargs)
            return self.layout.call(network, self.layout.state(states[group]), args, kwargs)

        output = in_groups(run, groups, rows, batch_dim, args, kwargs)
        self.refuses_vmap |= refused  # only now: one by one, wrong inputs would have raised as well
        return output

    def _states(self) -> Tensor | None:
        """Return the states to run, ``(draws, size)``, or None for the members as they are."""
        if self.posterior is None:
            return None
        sampling = self.sampling
        held = None if sampling.held is None else sampling.held[self.posterior.name]
        if held is not None:
            return held.clone() if self.training else held  # norm layers in training change their statistics in place
        if self.training or (sampling.samples == 0 and not self.posterior.ready):
            return None
        if sampling.samples == 0:
            return self.posterior.location()
        return self.posterior.hold(len(self.networks), sampling.samples, sampling.generator)

    # ------------------------------------------------------------------ one pass for all

    def _vectorises(self, args: Any, kwargs: Any) -> bool:
        wanted = next(self.parameters()).device.type != "cpu" if self.vectorised is None else self.vectorised
        packed = any(isinstance(leaf, PackedSequence) for leaf in batching.leaves((args, kwargs)))
        packed |= batching.addresses_rows((args, kwargs))  # whose positions are those of one draw after another
        return wanted and not (self.training or self.refuses_vmap or packed or torch.compiler.is_compiling())

    def _stacked(self, states: Tensor | None) -> dict[str, Tensor]:
        """Return what groups run with, stacked; with its history, unlike ``torch.func.stack_module_state``.

        States from a posterior lack a member's whole numbers, such as the indices of its inputs.
        """
        each = [{**dict(net.named_parameters()), **dict(net.named_buffers())} for net in self.networks]
        drawn = {} if states is None else self.layout.state(states)
        own = {name: torch.stack([state[name] for state in each]) for name in each[0] if name not in drawn}
        if states is not None:
            own = {name: x.repeat_interleave(len(states) // len(each), 0) for name, x in own.items()}
        return {**own, **drawn}

    def _at_once(self, states: dict[str, Tensor], groups: int, rows: int, args: Any, kwargs: Any) -> Any:
        inputs = list(batching.leaves((args, kwargs)))
        split = [x.tensor if x.axis is None else x.tensor.unflatten(x.axis, (groups, -1)) for x in inputs]
        nest: Any = None

        def one(state: dict[str, Tensor], *xs: Tensor) -> tuple[Tensor, ...]:
            nonlocal nest
            given = iter(xs)
            own_args, own_kwargs = batching.map_leaves(lambda leaf: next(given), (args, kwargs))
            nest = self.layout.call(self.networks[0], state, own_args, own_kwargs)
            return tuple(batching.tensors(nest))

        with without_fused_paths(), sdpa_kernel(SDPBackend.MATH):  # fused kernels have no batching rule
            outputs = vmap(one, in_dims=(0, *(x.axis for x in inputs)), randomness="different")(states, *split)
        size, batch_dim = rows // groups, self.sampling.batch_dim
        first = batching.narrow((args, kwargs), 0, size, rows, batch_dim)
        joined = iter(_join_rows(list(y.unbind()), size, batch_dim, first) for y in outputs)
        return batching.map_leaves(lambda leaf: next(joined), nest)

    # ------------------------------------------------------------------ the posterior

    @property
    def collected(self) -> int:  # type: ignore[override]
        """States that the posterior has taken in."""
        return 0 if self.posterior is None else self.posterior.collected

    @property
    def needed(self) -> int:  # type: ignore[override]
        """States that the posterior needs."""
        return 0 if self.posterior is None else self.posterior.needed

    @property
    def ready(self) -> bool:
        """Whether there is something to draw from."""
        return self.posterior is None or self.posterior.ready

    def collect(self) -> None:
        """Let the posterior take in the members' states."""
        if self.posterior is None:
            raise TypeError("These networks have no posterior over their states: there is nothing to collect.")
        self.posterior.take(torch.stack([self.layout.vector(network) for network in self.networks]))

    def set_up(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: networks are not made from a layer."""

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Return the network of one draw."""
        network = self.networks[member]
        if self.posterior is not None and self.posterior.ready:
            self.layout.load(network, pick(self.posterior))
        return network


def in_groups(run: Run, groups: int, rows: int, batch_dim: int, args: Any, kwargs: Any) -> Any:
    """Run consecutive groups of rows one after another, and join their outputs.

    Args:
        run: ``run(group, args, kwargs)`` runs the rows of one group.
        groups: Number of groups.
        rows: Rows in all.
        batch_dim: Axis of the rows.
        args: Inputs as ``BatchAxis``.
        kwargs: Keyword inputs, likewise.
    """
    size = rows // groups
    outputs = []
    for group in range(groups):
        part = batching.narrow((args, kwargs), group * size, (group + 1) * size, rows, batch_dim)
        own_args, own_kwargs = batching.unmarked(part)
        outputs.append(run(group, own_args, own_kwargs))
    if groups == 1:
        return outputs[0]
    if not torch.compiler.is_compiling():  # its words cannot be traced; an eager pass has checked the same
        _check_same_shapes(outputs)
    joined = iter(
        [_join_rows(parts, size, batch_dim, part) for parts in zip(*map(batching.leaves, outputs), strict=True)]
    )
    return batching.map_leaves(lambda leaf: next(joined), outputs[0])


def _join_rows(parts: Sequence[Tensor], size: int, batch_dim: int, inputs: Any) -> Tensor:
    """Join the rows of groups; numbers without an axis, such as auxiliary losses, are averaged."""
    if isinstance(parts[0], Tensor) and parts[0].dim() == 0:
        return (torch.stack(list(parts)) / len(parts)).sum()  # whole numbers have no mean()
    return torch.cat(list(parts), batching.output_axis(parts[0], size, batch_dim, inputs))


def _check_same_shapes(outputs: Sequence[Any]) -> None:
    told = [_told(output) for output in outputs]
    for member, own in enumerate(told):
        if own != told[0]:
            raise ValueError(
                f"Expected the members to have outputs of one shape, but member 0 returns {told[0]} and "
                f"member {member} {own}. Build them with the same outputs, in the same order."
            )


def _told(output: Any) -> str:
    """Return the shapes of an output's tensors, with the keys under which they stand."""
    keys = (" ".join(key) for key in _keys(output))
    shapes = (str(tuple(x.shape)) for x in batching.tensors(output))
    return " and ".join(" ".join(filter(None, pair)) for pair in zip(keys, shapes, strict=True)) or "no tensor"


def _keys(nest: Any) -> Iterator[tuple[str, ...]]:
    """Yield the keys of dicts that lead to each tensor of a nest."""
    if isinstance(nest, Mapping) and not is_dataclass(nest):
        yield from ((repr(key), *inner) for key, value in nest.items() for inner in _keys(value))
    elif isinstance(nest, (tuple, list)):
        yield from (inner for value in nest for inner in _keys(value))
    else:
        yield from (() for _ in batching.leaves(nest))


def _name_posterior(networks: nn.Module, state: dict[str, Any], prefix: str, *others: object) -> None:
    """Read files of versions before 0.1, where the posterior was called ``law``."""
    for name in [name for name in state if name.startswith(f"{prefix}law.")]:
        state[f"{prefix}posterior.{name.removeprefix(f'{prefix}law.')}"] = state.pop(name)


def _alike(first: nn.Module, other: nn.Module) -> bool:
    """Tell whether two networks have states of the same shapes, tied alike."""
    layouts = [StateLayout(net) for net in (first, other)]
    buffers = [{name: x.shape for name, x in net.named_buffers()} for net in (first, other)]
    same = layouts[0].shapes == layouts[1].shapes and layouts[0].tied == layouts[1].tied
    return str(first) == str(other) and same and buffers[0] == buffers[1]


def _same_code(first: nn.Module, other: nn.Module) -> bool:
    """Tell whether two networks, alike, compute the same with the same state; if in doubt, they do not.

    A plain number that a module computes with need not show in its text.
    """
    common = vars(nn.Module())
    if len(list(first.modules())) != len(list(other.modules())):  # one uses a module twice
        return False
    for one, two in zip(first.modules(), other.modules(), strict=True):
        own, theirs = ({name: x for name, x in vars(module).items() if name not in common} for module in (one, two))
        if own.keys() != theirs.keys() or not all(_same(x, theirs[name]) for name, x in own.items()):
            return False
    return True


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return torch.equal(one, two)
    return repr(one) == repr(two)
