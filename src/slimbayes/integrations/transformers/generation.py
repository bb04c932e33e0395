"""Text from a mixture of networks: each draw reads and writes the whole sequence, and they choose tokens together."""

import copy
import functools
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Generator, Tensor
from transformers.modeling_outputs import BaseModelOutput

from slimbayes._checks import check_count
from slimbayes._chunks import evaluating
from slimbayes.batching import BatchAxis
from slimbayes.integrations.transformers._reading import network_of
from slimbayes.layers.dropout_mask import ElementMask
from slimbayes.likelihoods import Categorical, mixture
from slimbayes.model import BayesianModel
from slimbayes.prediction import Prediction

__all__ = ["Generation", "generate"]

#: Numbers in the logits that are scored at once.
SCORED = 2**24
#: The cache of keys and values among a network's inputs and outputs.
CACHE = "past_key_values"


@dataclass(frozen=True)
class Generation:
    r"""Sequences and what the draws think of them. Figures of positions after a sequence's end are 0.

    Args:
        sequences: What ``transformers`` returns: prompts and new tokens, ``(sequences, length)``.
        tokens: The new tokens, ``(sequences, new)``.
        mask: Which of them belong to the sequence: those up to the first end-of-sequence token, it included.
        entropy: Of the mixture's next-token distribution, in nats, ``(sequences, new)``.
        expected_entropy: The draws' mean entropy.
        mutual_information: The difference: what the draws do not agree on.
        draw_log_likelihood: :math:`\log p_d(\text{sequence})` of each draw, ``(draws, sequences)``.
        disagreement: Share of pairs of members (of draws, if there is one member) whose most probable next tokens
            differ, mean over a sequence's tokens, ``(sequences,)``.
        output: What ``transformers`` returns with ``return_dict_in_generate=True``, else None.
    """

    sequences: Tensor
    tokens: Tensor
    mask: Tensor
    entropy: Tensor
    expected_entropy: Tensor
    mutual_information: Tensor
    draw_log_likelihood: Tensor
    disagreement: Tensor
    output: Any = None

    @property
    def log_likelihood(self) -> Tensor:
        r"""The mixture's: :math:`\log \frac1D \sum_d p_d(\text{sequence})`, ``(sequences,)``."""
        return mixture(self.draw_log_likelihood)


def generate(
    model: BayesianModel,
    inputs: Tensor | None = None,
    *,
    samples: int | None = None,
    seed: int | None = None,
    draw: dict[str, Tensor] | None = None,
    **kwargs: Any,
) -> Generation:
    r"""Generate text with all draws of a causal or encoder-decoder model.

    A draw is one network for all tokens and all examples. At each step the mean over draws,

    .. math::
        p(y_t \mid y_{<t}) = \frac1D \sum_d p_d(y_t \mid y_{<t}),

    is what ``transformers`` samples from, or searches in, with all of its options; each draw has its own cache of keys
    and values. (The logits that processors see are :math:`\log p` plus the draws' mean log-normaliser, so that
    with one draw they are the network's own.) Afterwards one pass over the sequences without a cache scores them.

    Args:
        model: Made of a Hugging Face network that generates, or of PEFT's around one.
        inputs: The prompts, as for ``network.generate``; or give ``input_ids`` and the like by name.
        samples: Draws of each member; None for ``model.default_samples``, 0 for each member at its location.
        seed: Decides the draws. (Sampling of tokens takes torch's global source, as ever.)
        draw: Values from ``model.draw``, instead of new ones.
        **kwargs: What ``network.generate`` takes: ``attention_mask``, ``max_new_tokens``, ``do_sample``,
            ``temperature``, ``num_beams``, ``generation_config``, ...

    Example:
        >>> import slimbayes as sb
        >>> config = transformers.GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=1, bos_token_id=1,
        ...                                  eos_token_id=2, pad_token_id=0)
        >>> model = sb.rank1(transformers.GPT2LMHeadModel(config), members=3)
        >>> made = generate(model, torch.tensor([[3, 4, 5]]), max_new_tokens=4, min_new_tokens=4)
        >>> made.tokens.shape, made.mutual_information.shape, made.log_likelihood.shape
        (torch.Size([1, 4]), torch.Size([1, 4]), torch.Size([1]))
    """
    if not isinstance(model, BayesianModel):
        raise TypeError(f"Expected argument `model` to be a BayesianModel, but got {type(model).__name__}.")
    network = network_of(model)
    _check(network, kwargs)
    samples = model.default_samples if samples is None else samples
    check_count("samples", samples, 0)
    with evaluating(model), torch.no_grad():
        if draw is None and samples > 0:
            draw = model.draw(samples, None if seed is None else Generator(model.device).manual_seed(seed))
        if samples > 0 and any(isinstance(part, ElementMask) for part in model.stochastic()):
            raise ValueError(
                "Expected a model whose draws are networks, but this one's dropout draws a mask for each value, which "
                "depends on where in the sequence a pass begins. Convert with sb.mc_dropout(net, rate, "
                "place='before', unit='filter')."
            )
        steps = _Steps(model, draw)
        output = transformers.GenerationMixin.generate(_facade(network, steps), inputs, **kwargs)
        sequences = output if isinstance(output, Tensor) else output.sequences
        ends = _ends(network, kwargs)
        figures = _score(steps, sequences, ends)
    rest = None if isinstance(output, Tensor) else output
    return Generation(sequences, *figures, output=rest)  # type: ignore[misc]  # of a fixed number of fields


def _check(network: Any, kwargs: dict[str, Any]) -> None:
    if not (isinstance(network, transformers.GenerationMixin) and network.can_generate()):
        raise TypeError(
            f"Expected argument `model` to be made of a network that generates, but got one made of a "
            f"{type(network).__name__}. Take a class with a language head, such as AutoModelForCausalLM."
        )
    config = kwargs.get("generation_config")
    for name in ("output_attentions", "output_hidden_states", "inputs_embeds", "assistant_model"):
        asked = kwargs.get(name) if name in kwargs else getattr(config, name, None)
        if asked is not None and asked is not False:
            raise ValueError(
                f"Expected no argument `{name}`, which is not one thing for several draws, but got one. Leave it out."
            )


class _Steps:
    """Runs a model on what ``transformers`` passes to the network at each step, and mixes the draws.

    Attributes:
        model: The model.
        draw: Values of the draws; None for the members' locations.
        first: Inputs of the first step, and its number of rows.
    """

    def __init__(self, model: BayesianModel, draw: dict[str, Tensor] | None) -> None:
        self.model, self.draw = model, draw
        self.first: dict[str, Any] = {}

    def run(self, kwargs: dict[str, Any]) -> Any:
        """Return the outputs on all draws, draws first."""
        kwargs = dict(kwargs)
        encoded = kwargs.get("encoder_outputs")
        if encoded is not None:  # (rows, draws, ...): what belongs to a row is beside it, wherever rows are picked
            states = encoded[0].movedim(1, 0).flatten(0, 1)
            kwargs["encoder_outputs"] = BaseModelOutput(last_hidden_state=BatchAxis(states, None))
        how = {"samples": 0} if self.draw is None else {"draw": self.draw}
        if not self.model.rows_known and kwargs.get(CACHE) is not None:
            # The passes that try the network would fill the cache.
            self.model(**{**kwargs, CACHE: None, "use_cache": False}, **how)
        return self.model(**kwargs, **how)

    def forward(self, **kwargs: Any) -> Any:
        """Return what the network would return if it were the mixture."""
        if not self.first:
            self.first = {name: value for name, value in kwargs.items() if name != CACHE}
        outputs = self.run(kwargs)
        logits = outputs.logits.float()
        normalisers = logits.logsumexp(-1, keepdim=True)
        mixed = mixture(logits - normalisers) + normalisers.mean(0)
        kept = {"logits": mixed, CACHE: getattr(outputs, CACHE, None)}
        return type(outputs)(**kept)

    def encode(self, network: Any, kwargs: dict[str, Any]) -> BaseModelOutput:
        """Return what the encoders of all draws return, ``(rows, draws, length, channels)``."""
        kwargs = {name: value for name, value in kwargs.items() if value is not None and name != "return_dict"}
        rows = len(kwargs[network.main_input_name])
        start = getattr(network.config, "decoder_start_token_id", None) or 0
        begin = torch.full((rows, 1), start, dtype=torch.long, device=self.model.device)
        outputs = self.run({**kwargs, "decoder_input_ids": begin, "use_cache": False})
        return BaseModelOutput(last_hidden_state=outputs.encoder_last_hidden_state.movedim(0, 1))


class _Encoder:
    """What a mixture's ``get_encoder`` returns."""

    def __init__(self, network: Any, steps: _Steps) -> None:
        self.forward = network.get_encoder().forward  # for its signature
        self._network, self._steps = network, steps

    def __call__(self, **kwargs: Any) -> BaseModelOutput:
        kwargs = {name: value for name, value in kwargs.items() if not name.startswith("output_")}
        return self._steps.encode(self._network, kwargs)


class _Mixture:
    """What is put before a network's class: ``transformers`` generates with it as if it were the network."""

    _steps: _Steps
    _network: Any

    def __call__(self, **kwargs: Any) -> Any:
        return self._steps.forward(**kwargs)

    def get_encoder(self, *args: Any, **kwargs: Any) -> _Encoder:
        return _Encoder(self._network, self._steps)

    def _reorder_cache(self, cache: Any, order: Tensor) -> Any:
        """Let beams go on from other beams: those of each draw by themselves."""
        draws = torch.arange(_draws(self._steps), device=order.device)
        cache.reorder_cache((order + len(order) * draws.unsqueeze(1)).flatten())
        return cache


def _draws(steps: _Steps) -> int:
    return steps.model.members if steps.draw is None else len(next(iter(steps.draw.values())))


def _facade(network: Any, steps: _Steps) -> Any:
    """Return a shallow copy of a network that answers for the mixture; the network is not touched."""
    facade = copy.copy(network)
    plain = type(network)

    @functools.wraps(plain.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)

    facade.__class__ = type(plain.__name__, (_Mixture, plain), {"forward": forward})
    # Beside the modules, which the copy shares with the network.
    facade.__dict__.update(_steps=steps, _network=network)
    facade.__dict__.pop("forward", None)
    return facade


def _ends(network: Any, kwargs: dict[str, Any]) -> list[int]:
    """Return the end-of-sequence tokens."""
    configs = (kwargs.get("generation_config"), network.generation_config)
    found = kwargs.get("eos_token_id")
    for config in configs:
        found = getattr(config, "eos_token_id", None) if found is None else found
    if found is None:
        return []
    return torch.as_tensor(found).flatten().tolist()


def _score(steps: _Steps, sequences: Tensor, ends: list[int]) -> tuple[Tensor, ...]:
    """Return the fields of a ``Generation`` from ``tokens`` to ``disagreement``."""
    first = steps.first
    name = "decoder_input_ids" if "decoder_input_ids" in first else "input_ids"
    prompt = first[name].shape[1]
    tokens = sequences[:, prompt:]
    ended = torch.isin(tokens, torch.tensor(ends, device=tokens.device, dtype=tokens.dtype))
    mask = ended.long().cumsum(1) - ended.long() == 0
    rows, new, draws = len(sequences), tokens.shape[1], _draws(steps)
    size = max(1, SCORED // (draws * max(new, 1) * steps.model.config.get_text_config(decoder=True).vocab_size))
    parts = []
    for begin in range(0, rows, size):
        some = torch.arange(begin, min(begin + size, rows), device=tokens.device)
        logits = steps.run(_whole(first, name, sequences, some, rows)).logits[:, :, prompt - 1 : -1]
        p = Prediction(logits, Categorical(class_dim=-1), steps.model.members)
        picked = p.draw_log_probs.gather(-1, tokens[some].expand(draws, -1, -1).unsqueeze(-1)).squeeze(-1)
        own = mask[some]
        disagreement = (p.disagreement * own).sum(1) / own.sum(1).clamp_min(1)
        figures = [value * own for value in (p.entropy, p.expected_entropy, p.mutual_information)]
        parts.append((*figures, (picked * own).sum(2).T, disagreement))
    entropy, expected, information, likelihoods, disagreement = (torch.cat(part) for part in zip(*parts, strict=True))
    return tokens, mask, entropy, expected, information, likelihoods.T, disagreement


def _whole(first: dict[str, Any], name: str, sequences: Tensor, some: Tensor, rows: int) -> dict[str, Any]:
    """Return the inputs of one pass over some whole sequences, without a cache, made from those of the first step."""
    given, new = len(first[name]), sequences.shape[1] - first[name].shape[1]
    # Rows of the first step stand in groups of beams, those of the sequences in groups of what is returned.
    source = some * given // rows
    whole: dict[str, Any] = {name: sequences[some]}
    causal = name == "input_ids"
    for key, value in first.items():
        if key in (name, "use_cache", "logits_to_keep", "return_dict"):
            continue
        picked = value
        if key == "encoder_outputs":
            picked = BaseModelOutput(last_hidden_state=value[0][source])
        elif isinstance(value, Tensor) and value.dim() > 1 and len(value) == given:
            picked = value[source]
        if isinstance(picked, Tensor) and (
            key.startswith("decoder_") or (causal and picked.shape[-1:] == first[name].shape[-1:])
        ):
            picked = _longer(key, picked, new)
        whole[key] = picked
    return {**whole, "use_cache": False}


def _longer(name: str, values: Tensor, new: int) -> Tensor:
    """Return a mask, or positions, of some more tokens."""
    last = values[..., -1:]
    more = last.expand(*values.shape[:-1], new)
    if name.endswith("position_ids"):
        more = last + torch.arange(1, new + 1, device=values.device)
    elif name.endswith("attention_mask"):
        more = torch.ones_like(more)
    return torch.cat([values, more], -1)
