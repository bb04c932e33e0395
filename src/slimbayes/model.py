"""The one protocol: a network whose output has its draws on the first axis.

``x`` is repeated for each member and sample (``batching``), goes through the network, whose Bayesian layers
read the ``Sampling`` state of the pass and draw their factors, and comes back with the draws split off.
"""

import inspect
import numbers
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any, Self
from weakref import ref

import torch
from torch import Generator, Tensor, nn

from slimbayes import _graphs, batching
from slimbayes._check_rows import check_graph, check_rows, look_at_rows
from slimbayes._checks import check_choice, check_count, check_keywords, check_number
from slimbayes._chunks import MAX_MEMORY
from slimbayes._chunks import predict as predict_in_chunks
from slimbayes._saving import save
from slimbayes.conversion import Conversion, Selector, checked_selector, copy_of, matches, replace
from slimbayes.ensembles._refreshed_posterior import RefreshedPosterior
from slimbayes.ensembles._statistics import refresh_statistics
from slimbayes.ensembles.networks import Networks, Turn
from slimbayes.layers.base import BayesianLayer, Collects, Stochastic, share_passes
from slimbayes.layers.rank1 import Factor
from slimbayes.layers.transformer import close_fast_paths, undo_patches
from slimbayes.likelihoods import Likelihood, get_likelihood
from slimbayes.prediction import Prediction
from slimbayes.priors import Prior
from slimbayes.sampling import NOISES, Passes, Sampling, Tape, check_sampling
from slimbayes.summary import Summary

__all__ = ["BayesianModel", "unwrapped"]

#: Name under which a draw of a model without random parts stands.
ANY = "any"
#: Draws, of all members together, that scores and tables of predictions rest on unless told otherwise.
ENOUGH_DRAWS = 8


class BayesianModel(nn.Module):
    """A network with draws. Made by a method such as ``sb.rank1``, not by hand.

    Attributes:
        net: The converted network.
        members: Mixture components K.
        method: Name of the method that made it.
        options: The method's options as JSON values.
        likelihood: A ``Likelihood``, how outputs are read; set by ``sb.ELBO``, or by hand.

    Example:
        >>> import slimbayes as sb
        >>> model = sb.rank1(nn.Linear(8, 3), members=4)
        >>> x = torch.randn(5, 8)
        >>> model(x, samples=2).shape, model(x, samples=0).shape
        (torch.Size([8, 5, 3]), torch.Size([4, 5, 3]))
    """

    def __init__(self, conversion: Conversion, method: str, options: dict[str, Any]) -> None:
        super().__init__()
        check_choice("noise", options["noise"], NOISES)
        check_choice("train_on", options.get("train_on", "tile"), ("tile", "split"))
        check_count("batch_dim", options["batch_dim"], 0)
        self.net = conversion.net
        self.method = method
        self.options = options
        self.members: int = options.get("members", 1)
        self.parts = conversion.parts
        self.parameters_before = conversion.parameters_before
        self.passes = Passes(Sampling(batch_dim=options["batch_dim"], in_model=True))
        self.likelihood: Likelihood | None = None
        for name, module in self.net.named_modules():
            if isinstance(module, (BayesianLayer, Stochastic)):
                module.name = name
        share_passes(self.net, self.passes)
        self.patches = close_fast_paths(self.net)
        self._checked = False
        #: Held while the network is tried, on an example or two, so that hooks hear one thread. It is the model's own:
        #: a network may predict with another model, which may at the same time be tried in another thread.
        self.trial = Turn()
        #: Whether a pass on rows has shown which layers see the batch, and which random tables are read by position.
        self.rows_known = False
        #: Whether a pass on a graph has shown that the network keeps the nodes of one draw apart from those of another.
        self.graphs_known = False
        #: Shapes of the inputs that were predicted last, and a row's memory with them.
        self.probed: tuple[Any, int] | None = None
        parameters = inspect.signature(self._first_network.forward).parameters
        #: Names of the network's arguments, with stars for any others.
        self._arguments = [f"{'**' * (p.kind is p.VAR_KEYWORD)}{name}" for name, p in parameters.items()]
        self._warn_of_shadowed_arguments()
        self._freeze(options.get("train"))

    def _freeze(self, train: Selector) -> None:
        """Freeze what conversion did not add, but for the modules to train, if the base is to be frozen."""
        frozen = self.options["freeze_base"]
        if train is not None and not frozen:
            raise ValueError(
                f"Expected argument `train` with freeze_base=True, which it makes exceptions from, but got {train!r} "
                "without. Leave it out: everything is trained."
            )
        train = checked_selector("train", train, self.net)
        own = [name for name, module in self.net.named_modules() if any(True for _ in module.parameters(False))]
        picked = [name for name in own if matches(train, name, self.net.get_submodule(name))]
        if "train" in self.options:
            self.options["train"] = picked or None
        if frozen:
            kept = {*map(id, self.added_parameters()), *map(id, self.trained_of_base())}
            for parameter in self.net.parameters():
                parameter.requires_grad_(id(parameter) in kept)
            self.train(self.net.training)

    def trained_of_base(self) -> Iterator[Tensor]:
        """Yield parameters and buffers of the modules that a frozen base is trained in all the same."""
        for name in self.options.get("train") or ():
            module = self.net.get_submodule(name)
            yield from (*module.parameters(recurse=False), *module.buffers(recurse=False))

    # ------------------------------------------------------------------ forward

    def forward(
        self,
        *args: Any,
        samples: int = 1,
        noise: str | None = None,
        generator: Generator | None = None,
        draw: dict[str, Tensor] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the network on every draw.

        Args:
            *args: The network's inputs, tensors in any nest. Tensors whose batch axis has the batch's size
                are repeated for each draw; others are shared. ``sb.BatchAxis`` settles doubts.
            samples: Draws of each member; 0 for each member at its location.
            noise: ``"example"``, ``"shared"`` or ``"independent"``, see ``sb.rank1``; None for the model's own.
            generator: Source of randomness; None for torch's global one.
            draw: Values from ``model.draw``, instead of new ones.
            **kwargs: The network's keyword arguments.

        Returns:
            What the network returns, each tensor with a first axis of ``members * max(samples, 1)`` draws,
            member-major. In training with ``train_on="split"``: of ``samples`` draws.
        """
        if kwargs:
            check_keywords(BayesianModel.forward, self._arguments, kwargs)
        noise = self.options["noise"] if noise is None else noise
        if type(samples) is not int or samples < 0 or noise not in NOISES:
            check_sampling(samples, noise)  # says what is wrong
        noise = "shared" if self.coherent else noise
        if draw is not None:
            samples = self._samples_of(draw)
        batch_dim = self.passes.at_rest.batch_dim
        args, kwargs = self.marked(args, kwargs)
        size = batching.batch_size((args, kwargs), batch_dim)
        if size == 0:
            raise ValueError("Expected a batch of at least one example, but got an empty one.")
        graph = _graphs.lengths((args, kwargs)) if batching.addresses_rows((args, kwargs)) else None
        axes, self.passes.axes = self.passes.axes, None  # asked of this pass, not of one within it
        followed = torch.compiler.is_compiling() or torch.jit.is_tracing()
        if graph and not self.graphs_known and not followed:
            check_graph(self, args, kwargs)
        if not graph and not self.rows_known and not followed:
            look_at_rows(self, args, kwargs, size)
        each = samples if samples > 1 else 1  # not max: compilers are to know that one is one, not an unknown
        split = self.training and self.options.get("train_on") == "split"
        rows = self.members * each * (-(-size // self.members) if split else size)
        given = args, kwargs
        # Whose turn it is first is random, so that every member meets every example sooner or later.
        first = self._first(generator) if split else 0
        change = self._dealt(each, first) if split else self._tiled(self.members * each)
        args, kwargs = batching.on_batch((args, kwargs), size, batch_dim, change, self.independent)
        try:
            output = self._run(args, kwargs, samples, noise, rows, generator, draw)
        except (ValueError, RuntimeError) as error:
            if graph and isinstance(error, ValueError):
                raise ValueError(f"{error} {_graphs.WHICH_GRAPH}") from error
            if isinstance(error, RuntimeError) and (advice := _graphs.advice_on_matrices(given, size)):
                raise ValueError(f"{str(error).splitlines()[0]}.{advice}") from error
            raise
        if not (followed or graph or self.rows_known):  # what could be tried has been
            self.rows_known = True
        if graph and not (followed or self.graphs_known):
            self.graphs_known = True
        if graph:
            return _graphs.split_draws(output, self.members * each, graph, self.independent)
        if axes is not None:
            axes.extend(batching.output_axes(output, rows, batch_dim, (args, kwargs)))
        if split:
            return batching.collect(output, self.members, each, size, batch_dim, first, (args, kwargs))
        return batching.split_draws(output, self.members * each, rows, batch_dim, (args, kwargs))

    def marked(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return inputs of the network with what the values of some of them say about their rows, see ``BatchAxis``."""
        if not kwargs and len(args) == 1 and isinstance(args[0], Tensor):
            return args, kwargs  # the common case: a tensor alone addresses no rows
        args, kwargs = _graphs.mark(args, kwargs, self._arguments, self.sampling.batch_dim)
        if batching.addresses_rows((args, kwargs)):
            _graphs.check_fit(self.net, split=self.training and self.options.get("train_on") == "split")
        return args, kwargs

    def _run(
        self,
        args: Any,
        kwargs: Any,
        samples: int,
        noise: str,
        rows: int,
        generator: Generator | None,
        draw: dict[str, Tensor] | None,
    ) -> Any:
        if samples > 0:  # a pass that draws nothing leaves the source of randomness as it was
            generator = self.own_source(generator)
        at_work = self.coherent and self.training  # what trains runs as it is, and nothing is drawn
        if noise == "shared" and draw is None and samples > 0 and not at_work:
            draw = self.draw(samples, generator)
        first = not self._checked and not torch.compiler.is_compiling()
        seen: dict[str, list[Any]] | None = {} if first else self.passes.looking
        batch_dim = self.sampling.batch_dim
        tape = Tape() if torch.is_grad_enabled() and not torch.compiler.is_compiling() else None
        with self._pass(Sampling(samples, noise, rows, batch_dim, generator, draw, {}, seen, True, tape)):
            output = self.net(*args, **kwargs)
            if tape is not None and tape.calls:
                self._note_outputs(output, tape)
        if first:
            assert seen is not None
            self._checked = True
            self._warn_if_bypassed(set(seen))
            self._warn_of_own_loss(output)
        return output

    def _note_outputs(self, output: Any, tape: Tape) -> None:
        """Let a backward pass that reaches these outputs tell the layers which pass it is in."""
        passes = self.passes
        # What was drawn belongs to the graph of this time.
        state = replace_fields(passes.now, drawn={}, seen=None, tape=replace_fields(tape, again=True))

        def reach(_: Tensor) -> None:
            passes.reached = ref(state)

        for x in batching.tensors(output):
            if x.grad_fn is not None:
                x.register_hook(reach)

    @contextmanager
    def _pass(self, state: Sampling) -> Iterator[None]:
        """Let the layers run with this state, in this thread; put everything back, also when the pass fails."""
        passes = self.passes
        before, passes.now = passes.now, state
        try:
            yield
        finally:
            passes.now = before

    def own_source(self, generator: Generator | None) -> Generator | None:
        """Return the generator to draw from; in distributed training, one of this process alone.

        Processes that were seeded alike would otherwise give the same noise to different examples. The seed comes from
        torch's global generator, so that ``torch.manual_seed`` still decides everything.
        """
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if generator is not None or not distributed or torch.compiler.is_compiling():
            return generator
        rank = torch.distributed.get_rank()
        seed = int(torch.randint(2**62, ())) ^ (rank * 0x9E3779B97F4A7C15 % 2**62)
        return Generator(self.device).manual_seed(seed)

    @staticmethod
    def _tiled(copies: int) -> Any:
        return lambda x, axis: x if copies == 1 else batching.tile(x, axis, copies)

    def _first(self, generator: Generator | None) -> int | Tensor:
        """Draw a member; as a plain number where that costs nothing, so that ``batching`` can use an order again."""
        first = torch.randint(self.members, (1,), device=self.device, generator=generator)
        followed = torch.compiler.is_compiling() or torch.jit.is_tracing()
        return int(first) if type(first) is Tensor and first.is_cpu and not followed else first

    def _dealt(self, samples: int, first: int | Tensor) -> Any:
        def deal(x: Tensor, axis: int) -> Tensor:
            dealt = batching.deal(x, axis, self.members, first)
            if samples == 1:
                return dealt
            hands = dealt.unflatten(axis, (self.members, -1)).unsqueeze(axis + 1)
            return hands.expand(*hands.shape[: axis + 1], samples, *hands.shape[axis + 2 :]).flatten(axis, axis + 2)

        return deal

    def _warn_of_shadowed_arguments(self) -> None:
        own = set(inspect.signature(BayesianModel.forward).parameters) - {"self", "args", "kwargs"}
        shadowed = sorted(own & set(self._arguments))
        if shadowed:
            warnings.warn(
                f"The network's forward has arguments named {', '.join(shadowed)}, which are the model's own as "
                "keywords. Pass them to the network by position.",
                stacklevel=4,
            )

    def _warn_of_own_loss(self, output: Any) -> None:
        """Warn if the network computes a loss of its own, and nothing says that another one is minimised."""
        loss = getattr(output, "loss", None)
        followed = isinstance(loss, Tensor) and loss.requires_grad and self.net.training
        if followed and self.likelihood is None and self.kl().requires_grad:
            warnings.warn(
                "The network computes a loss of its own, which has no KL: minimised, it shrinks the posterior to a "
                "point. Leave the labels out and use sb.ELBO, or slimbayes.integrations.transformers.Trainer.",
                stacklevel=6,
            )

    def _warn_if_bypassed(self, called: set[str]) -> None:
        seen = {id(part) for layer in self.layers() if layer.name in called for part in layer.modules()}
        missed = [
            layer.name
            for layer in self.layers()
            # A tied weight has one posterior in all layers that have it.
            if layer.name not in called
            and not any(isinstance(m, Stochastic) and id(m) in seen for m in layer.modules())
        ]
        if missed:
            warnings.warn(
                "These layers were converted, but the first forward pass did not call them: "
                f"{', '.join(missed)}. If the network reads their weights directly, their factors are bypassed: "
                "exclude them, or register a converter for the module that does so.",
                stacklevel=4,
            )

    # ------------------------------------------------------------------ random parts

    def layers(self) -> Iterator[Any]:
        """Yield the Bayesian layers."""
        return (module for module in self.net.modules() if isinstance(module, BayesianLayer))

    def stochastic(self) -> Iterator[Any]:
        """Yield the random parts: factors, weights, tables."""
        return (module for module in self.net.modules() if isinstance(module, Stochastic))

    def draw(self, samples: int = 1, generator: Generator | None = None) -> dict[str, Tensor]:
        """Draw every random part once per member and sample, for ``model(x, draw=...)`` and ``member``.

        Returns:
            By name, tensors of shape ``(members * samples, *shape of the part)``; of a model without random parts,
            something of that length.
        """
        check_count("samples", samples, 1)
        parts = list(self.stochastic())
        if not parts:
            return {ANY: torch.zeros(self.members * samples, device=self.device)}
        # Sample by sample, so that the first few of many are the same draws as a few alone.
        with self._without_replacement():
            each = [{part.name: part.hold(self.members, 1, generator) for part in parts} for _ in range(samples)]
        if samples == 1:
            return each[0]
        return {part.name: torch.stack([one[part.name] for one in each], 1).flatten(0, 1) for part in parts}

    def _without_replacement(self) -> AbstractContextManager[None]:
        posterior = self.net.posterior if isinstance(self.net, Networks) else None
        anew = self.sampling.rows is not None  # called within a pass, whose draws are not ours
        return nullcontext() if posterior is None else posterior.without_replacement(anew)

    def _samples_of(self, draw: dict[str, Tensor]) -> int:
        if not isinstance(draw, dict):
            raise TypeError(
                f"Expected argument `draw` to be a dict of tensors, but got {type(draw).__name__}. Make it with "
                "model.draw()."
            )
        names = {part.name for part in self.stochastic()} or {ANY}
        if set(draw) != names:
            wrong = sorted(names.symmetric_difference(draw))[:3]
            raise ValueError(
                f"Expected argument `draw` to hold this model's parts, but it differs in {wrong}. "
                "Make it with model.draw()."
            )
        return next(iter(draw.values())).shape[0] // self.members

    def kl(self, member_kl: str = "sum") -> Tensor:
        r"""Return :math:`\sum KL(q \| p)` over all random parts (Eq. 2); needs no forward pass.

        Args:
            member_kl: ``"sum"`` over members (the reference), or their ``"mean"`` (the bound for a uniform
                mixture, by convexity of the KL). Parts that the members share count once either way.
        """
        if member_kl not in ("sum", "mean"):
            check_choice("member_kl", member_kl, ("sum", "mean"))  # says what is wrong
        factors: dict[Any, list[Factor]] = {}
        terms: list[Tensor] = []
        for module in self.net.modules():
            if type(module) is Factor:
                factors.setdefault(module.kl_key(), []).append(module)
            elif isinstance(module, Stochastic):
                terms.append(module.kl())
            elif isinstance(module, Prior) and module.rho is not None and (penalty := module.penalty()) is not None:
                terms.append(penalty)
        terms += map(Factor.joint_kl, factors.values())
        # Scalars are of parts that the members share.
        totals = [term.mean() if member_kl == "mean" else term.sum() for term in terms]
        return sum(totals[1:], totals[0]) if totals else torch.zeros((), device=self.device)

    @property
    def _first_network(self) -> Any:
        """The network; of several, the first."""
        return self._networks[0]

    @property
    def _networks(self) -> list[Any]:
        return list(self.net.networks) if isinstance(self.net, Networks) else [self.net]

    @property
    def sampling(self) -> Sampling:
        """The state of the forward pass under way in this thread, or what there is between passes."""
        return self.passes.now

    @property
    def independent(self) -> bool:
        """Whether the members share nothing, each a whole network: what is minimised is then their sum."""
        return isinstance(self.net, Networks)

    @property
    def coherent(self) -> bool:
        """Whether a draw is one network for all examples, whatever ``noise`` says."""
        return self.independent

    @property
    def is_point(self) -> bool:
        """Whether all draws of a member are the same: nothing is random, or nothing has any spread."""
        return not any(part.scale.any() for part in self.stochastic())

    @property
    def default_samples(self) -> int:
        """Draws of each member where nobody says how many: as many as make 8 in all; 1 where all would be the same.

        Scores after training, ``slimbayes evaluate`` and ``slimbayes predict`` use it. (A call of the model and
        ``predict`` draw once, as ``samples=1`` says.)

        Example:
            >>> import slimbayes as sb
            >>> net = nn.Linear(8, 3)
            >>> [model.default_samples for model in (sb.rank1(net, members=4), sb.batch_ensemble(net, members=4))]
            [2, 1]
        """
        return 1 if self.is_point else -(-ENOUGH_DRAWS // self.members)

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the parameters."""
        return next(self.parameters()).dtype

    # ------------------------------------------------------------------ what Hugging Face's tools ask for

    @property
    def config(self) -> Any:
        """The network's own configuration, of a network that has one, such as Hugging Face's."""
        return self._first_network.config

    def print_trainable_parameters(self) -> None:
        """Print how many parameters are trained, in the words of PEFT.

        Example:
            >>> import slimbayes as sb
            >>> sb.rank1(nn.Linear(8, 3), members=2, freeze_base=True).print_trainable_parameters()
            trainable params: 44 || all params: 74 || trainable%: 59.4595
        """
        counts = [(p.numel(), p.requires_grad) for p in self.parameters()]
        every, trained = sum(n for n, _ in counts), sum(n for n, trains in counts if trains)
        print(f"trainable params: {trained:,d} || all params: {every:,d} || trainable%: {100 * trained / every:.4f}")

    def gradient_checkpointing_enable(self, *args: Any, **kwargs: Any) -> None:
        """Switch activation checkpointing on, of a network that has the method of this name, as it does."""
        for network in self._networks:
            network.gradient_checkpointing_enable(*args, **kwargs)
            if self.options["freeze_base"]:
                # The older form of checkpointing gives gradients only where an input has one.
                network.enable_input_require_grads()

    def gradient_checkpointing_disable(self) -> None:
        """Switch it off."""
        for network in self._networks:
            network.gradient_checkpointing_disable()
            if self.options["freeze_base"]:
                network.disable_input_require_grads()

    # ------------------------------------------------------------------ prediction

    def predict(
        self,
        *args: Any,
        samples: int = 1,
        batch_size: int | None = None,
        noise: str | None = None,
        generator: Generator | None = None,
        seed: int | None = None,
        max_memory: int = MAX_MEMORY,
        likelihood: str | Likelihood | None = None,
        keep_draws: bool | None = None,
        **kwargs: Any,
    ) -> Prediction:
        """Predict in evaluation mode without gradients, in chunks that bound the memory.

        Of many examples the draws are not kept, so that what is held does not grow with their number: the result is a
        ``PredictionSummary``, whose figures (``probs``, ``entropy``, ``mean``, ``std``, ...) are computed from the
        draws of a chunk of examples at a time. What needs the draws themselves, such as ``interval`` and
        ``log_likelihood``, is an error that asks for ``keep_draws=True``.

        Args:
            *args: The network's inputs.
            samples: Draws of each member; 0 for each member at its location.
            batch_size: Examples in a chunk; None for as many as ``max_memory`` allows, on a CPU as few as keep the
                activations in its cache.
            noise: ``"example"`` or ``"shared"``; None for the model's own. Shared draws are the same in all
                chunks.
            generator: Source of randomness.
            seed: Seeds a generator of its own: the same seed gives the same prediction, however it is cut into chunks.
            max_memory: Bytes of activations to stay within, by an estimate from one example.
            likelihood: How to read the outputs; None for the model's own.
            keep_draws: Whether to keep the outputs of all draws. None: if they have at most 2**24 numbers (64 MiB); if
                no figure can be computed from them, as with a likelihood that is a function; or if the draws of the
                weights, which all chunks of examples share, would together exceed ``max_memory``.
            **kwargs: The network's keyword arguments.
        """
        if generator is not None and not isinstance(generator, Generator):
            raise TypeError(
                f"Expected argument `generator` to be a torch.Generator, but got {generator!r}. Give a number as seed."
            )
        check_keywords(BayesianModel.predict, self._arguments, kwargs)
        if seed is not None:
            check_count("seed", seed, 0)
            if generator is not None:
                raise ValueError(f"Expected `seed` or `generator`, but got both (seed={seed}). Give one.")
            generator = Generator(self.device).manual_seed(seed)
        if keep_draws is not None and not isinstance(keep_draws, bool):
            raise TypeError(f"Expected argument `keep_draws` to be True, False or None, but got {keep_draws!r}.")
        reading = self.likelihood if likelihood is None else get_likelihood(likelihood)

        def read(draws: Any) -> Prediction:
            return Prediction(draws, reading, self.members, self.sampling.batch_dim)

        with self._without_replacement():
            return predict_in_chunks(
                self, args, kwargs, samples, batch_size, noise, generator, max_memory, keep_draws, read
            )

    def member(
        self,
        index: int,
        sample: int | None = None,
        generator: Generator | None = None,
        draw: dict[str, Tensor] | None = None,
    ) -> nn.Module:
        """Return one member as a plain network of the original classes, factors folded into its weights.

        Args:
            index: The member.
            sample: None for the member at its location; a number to fold one draw of it: the first of a new
                one, or that one of ``draw``.
            generator: Source of randomness for a new draw; the network then equals
                ``model(x, noise="shared", generator=...)[index]`` under a generator in the same state.
            draw: Values from ``model.draw``.
        """
        if isinstance(index, bool) or not isinstance(index, numbers.Integral) or not 0 <= index < self.members:
            raise ValueError(f"Expected argument `index` to be from 0 to {self.members - 1}, but got {index!r}.")
        if sample is not None:
            check_count("sample", sample, 0)
        row = 0
        if draw is not None:
            samples = self._samples_of(draw)
            if (sample or 0) >= samples:
                raise ValueError(
                    f"Expected argument `sample` to be from 0 to {samples - 1}, as `draw` has {samples} of each, "
                    f"but got {sample}."
                )
            row = index * samples + (sample or 0)
        elif sample is not None or generator is not None:
            draw, row = self.draw((sample or 0) + 1, generator), index * ((sample or 0) + 1) + (sample or 0)

        def pick(part: Stochastic) -> Tensor:
            return part.at_location(index) if draw is None else draw[part.name][row]

        with self.net.turn if isinstance(self.net, Networks) else nullcontext():
            folded = copy_of(self)
        undo_patches(folded.net, folded.patches)
        for layer in list(folded.layers()):
            plain = layer.fold(pick, index)
            if plain is not layer:
                replace(folded, layer, plain)
        return folded.net

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Make sure that the network keeps its rows in order: run it on a batch, and its members one by one.

        A network that sorts, mixes or concatenates along the batch axis passes rows to the wrong members, which no
        layer can notice. Needs memory for one copy of the network. Raises an error that says what to do.

        Args:
            *args: Inputs of the network, two examples or more; as for ``forward``.
            **kwargs: Its keyword arguments.
        """
        check_rows(self, args, kwargs)

    # ------------------------------------------------------------------ training

    def added_parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters that conversion added, other than biases: locations, scales, priors."""
        return (parameter for part in self.stochastic() for parameter in part.parameters())

    def param_groups(
        self, lr: float | None = None, weight_decay: float = 0.0, factor_lr: float | None = None
    ) -> list[dict[str, Any]]:
        """Return parameter groups for any torch optimiser: no weight decay on what has a KL.

        Args:
            lr: Learning rate of what the network had; None for the optimiser's default.
            weight_decay: Of point estimates (of rank-1 models: weights, norms and biases, as in the reference); the
                papers' l2 is ``weight_decay = 2 * l2``.
            factor_lr: Learning rate of what conversion added, factors or standard deviations; None for ``lr``.
        """
        for argument, value in (("lr", lr), ("weight_decay", weight_decay), ("factor_lr", factor_lr)):
            if value is not None and not isinstance(value, Tensor):  # of groups, torch checks no values
                check_number(argument, value, 0.0, or_low=True)
        added = {id(p): p for p in self.added_parameters()}
        if self.likelihood is not None:
            added.update((id(p), p) for p in self.likelihood.parameters())
        means = {id(p): p for part in self.stochastic() for p in part.own_means()}
        base = [p for p in self.parameters() if id(p) not in added and id(p) not in means]
        groups: list[dict[str, Any]] = [
            {"params": base, "weight_decay": weight_decay, "lr": lr},
            {"params": list(means.values()), "weight_decay": 0.0, "lr": lr},
            {"params": list(added.values()), "weight_decay": 0.0, "lr": lr if factor_lr is None else factor_lr},
        ]
        for group in groups:
            group["params"] = [p for p in group["params"] if p.requires_grad]
            if group["lr"] is None:
                del group["lr"]
        return [group for group in groups if group["params"]]

    def train(self, mode: bool = True) -> Self:
        """Set training mode; the statistics of a frozen base's norm layers stay as they are."""
        super().train(mode)
        if mode and self.options["freeze_base"]:
            trained = self.options.get("train") or ()
            for name, module in self.net.named_modules():
                if isinstance(module, nn.modules.batchnorm._NormBase) and name not in trained:
                    module.eval()
        return self

    def collect(self) -> None:
        """Take what training has arrived at into the posterior that draws come from, with methods that collect.

        SWAG takes a snapshot, a chain keeps a sample. Call it every so often once training has settled.
        """
        parts = self._collecting()
        if not parts:
            raise TypeError(f"A model made by {self.method} collects nothing in training: its draws need no collect().")
        for part in parts:
            part.collect()

    def refresh(self, batches: Any, samples: int = 30, seed: int = 0) -> None:
        """Measure the batch-norm statistics of draws, with SWAG and subspaces; a network without them needs none.

        Makes ``samples`` draws of each member, and sends all batches through each of them and through the location,
        with dropout off. From then on draws are these, none of them twice before all have come once, until something
        new is collected. Of a draw, its seed and its statistics are stored.

        Args:
            batches: Training inputs, as a list or a loader. A batch is the inputs, or a tuple or list that begins with
                them; inputs are a tensor, or several in a tuple or list, or keyword arguments in a dict.
            samples: Draws of each member; of a subspace's stored samples, at most as many as there are.
            seed: Decides the draws, on any device.
        """
        posterior = self.net.posterior if isinstance(self.net, Networks) else None
        if not isinstance(posterior, RefreshedPosterior):
            raise TypeError(f"A model made by {self.method} has no draws whose statistics must be measured.")
        if posterior.has_norms:
            assert isinstance(self.net, Networks)
            networks = [copy_of(network) for network in self.net.networks]
            refresh_statistics(posterior, networks, self.net.layout, batches, samples, seed)

    def _collecting(self) -> list[Any]:
        parts = [part for part in self.net.modules() if isinstance(part, Collects)]
        return [part for part in parts if not isinstance(part, Networks) or part.posterior is not None]

    @property
    def collected(self) -> int:
        """How often ``collect`` has been called."""
        return max((part.collected for part in self._collecting()), default=0)

    @property
    def needed(self) -> int:
        """How often ``collect`` must be called before there is something to draw from; 0 where it never is."""
        return max((part.needed for part in self._collecting()), default=0)

    @property
    def ready(self) -> bool:
        """Whether there is something to draw from: always, but for methods that collect."""
        return all(part.ready for part in self._collecting())

    # ------------------------------------------------------------------ summary and storage

    def summary(self) -> Summary:
        """Return what was converted, what was left and why, and the parameters before and after."""
        return Summary.of(self)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors``; read them with ``sb.load(folder, net)``."""
        save(self, folder)

    def extra_repr(self) -> str:
        """Show the method."""
        return f"{self.method}, members={self.members}"


def unwrapped(model: Any) -> list[Any]:
    """Return the model and what it wraps (compiled, distributed, or both), from the outside in."""
    wrappers = [model]
    for attribute in ("_orig_mod", "module", "_orig_mod"):
        if hasattr(wrappers[-1], attribute):
            wrappers.append(getattr(wrappers[-1], attribute))
    if not isinstance(wrappers[-1], BayesianModel):
        raise TypeError(
            f"Expected argument `model` to be a BayesianModel, but got {type(model).__name__}. "
            "Make one with sb.rank1(net) or another method."
        )
    return wrappers
