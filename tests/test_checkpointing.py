"""Activation checkpointing: a part that is run again during backward sees the draws that it saw before."""

import threading

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import slimbayes as sb
from hugging_face import BATCH, bert, inputs, llama, t5

pytestmark = pytest.mark.filterwarnings("ignore:::transformers")

METHODS = {
    "rank1": lambda net: sb.rank1(net, members=2, dropout_rate=0.2),
    "rank1 split": lambda net: sb.rank1(net, members=2, dropout_rate=0.2, train_on="split"),
    "mean_field": lambda net: sb.mean_field(net, init_std=0.1),
    "flipout": lambda net: sb.mean_field(net, init_std=0.1, estimator="flipout"),
    "local": lambda net: sb.mean_field(net, init_std=0.1, estimator="local"),
    "k_tied": lambda net: sb.k_tied(net, init_std=0.1),
    "mc_dropout": lambda net: sb.mc_dropout(net, 0.2),
    "filters": lambda net: sb.mc_dropout(net, 0.2, place="before"),
}
#: How a network runs its blocks; the middle one is torch's older way.
WAYS = {"plain": None, "reentrant": {"use_reentrant": True}, "not reentrant": {"use_reentrant": False}}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.dropout, self.after = nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.after(self.dropout(self.before(x).tanh()))


class Blocks(nn.Module):
    """Blocks whose activations are not kept, as ``way`` says."""

    way: dict | None = None

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x) if self.way is None else checkpoint(block, x, **self.way)
        return self.last(x)


def gradients(model: sb.BayesianModel) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    assert first
    for name, gradient in first.items():
        assert torch.equal(gradient, second[name]), name


@pytest.mark.parametrize("seeded", [False, True], ids=["global", "generator"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("passes", [1, 2])
def test_gradients_are_the_same_bit_by_bit(method: str, seeded: bool, passes: int) -> None:
    """Also of two passes in one loss; and the source of randomness is where it was."""
    net, x, found = Blocks().double(), torch.randn(5, 4).double(), {}
    for way, options in WAYS.items():
        torch.manual_seed(1)
        model = METHODS[method](net).train()
        model.net.way = options
        torch.manual_seed(2)
        generator = torch.Generator().manual_seed(3) if seeded else None
        loss = model(x, samples=2, generator=generator).square().mean()
        if passes == 2:
            loss = loss + 3 * model(x + 1, generator=generator).sin().mean()
        loss.backward()
        found[way] = gradients(model), torch.get_rng_state()
    for way in ("reentrant", "not reentrant"):
        assert torch.equal(found["plain"][1], found[way][1])
        if way == "reentrant" and passes == 2:  # which adds up what several passes contribute in another order
            for name, gradient in found["plain"][0].items():
                torch.testing.assert_close(found[way][0][name], gradient, rtol=1e-12, atol=1e-14)
        else:
            assert_equal(found["plain"][0], found[way][0])


@pytest.mark.parametrize("method", ["rank1", "mean_field", "filters"])
@pytest.mark.parametrize("way", ["reentrant", "not reentrant"])
def test_shared_draws(method: str, way: str) -> None:
    net, x, found = Blocks().double(), torch.randn(5, 4).double(), []
    for options in (None, WAYS[way]):
        torch.manual_seed(1)
        model = METHODS[method](net).train()
        model.net.way = options
        torch.manual_seed(2)
        model(x, samples=2, noise="shared").square().mean().backward()
        found.append(gradients(model))
    for name, gradient in found[0].items():  # the older way adds up in another order
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("way", ["reentrant", "not reentrant"])
def test_the_pass_knows_its_draws_where_torch_does_not_put_the_source_back(way: str) -> None:
    net, x, found = Blocks().double(), torch.randn(5, 4).double(), []
    for block in net.blocks:
        block.dropout.p = 0.0
    for options in (None, {**WAYS[way], "preserve_rng_state": False}):
        torch.manual_seed(1)
        model = sb.rank1(net, members=2, dropout_rate=0.2).train()
        model.net.way = options
        torch.manual_seed(2)
        model(x).square().mean().backward()
        found.append((gradients(model), torch.get_rng_state()))
    assert_equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])  # the next pass does not draw the same once more


def test_blocks_in_blocks_and_a_kept_graph() -> None:
    net, x, found = Blocks().double(), torch.randn(5, 4).double(), []
    for nested in (False, True):
        torch.manual_seed(1)
        model = sb.rank1(net, members=2, dropout_rate=0.2).train()
        if nested:
            model.net.way = WAYS["not reentrant"]
            whole = model.net.forward
            model.net.forward = lambda x, whole=whole: checkpoint(whole, x, use_reentrant=False)
        torch.manual_seed(2)
        loss = model(x).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        found.append(gradients(model))
    assert_equal(*found)


def test_each_thread_has_its_own() -> None:
    x = torch.randn(5, 4).double()
    torch.manual_seed(1)
    model = sb.rank1(Blocks().double(), members=2, dropout_rate=0.2).train()
    model(x)
    model.net.way = WAYS["not reentrant"]
    for block in model.net.blocks:
        block.dropout.p = 0.0

    def run(seed: int) -> list[Tensor]:
        loss = model(x, generator=torch.Generator().manual_seed(seed)).square().mean()
        barrier.wait()
        return list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))

    barrier = threading.Barrier(1)
    expected = [run(seed) for seed in range(2)]
    barrier, found = threading.Barrier(2), {}
    threads = [threading.Thread(target=lambda s=seed: found.update({s: run(s)})) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, gradients_of in enumerate(expected):
        for first, second in zip(gradients_of, found[seed], strict=True):
            assert (first is None and second is None) or torch.equal(first, second)


class Twice(Blocks):
    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(2):
            x = checkpoint(self.blocks[0], x, **self.way)
        return self.last(x)


@pytest.mark.parametrize("way", ["reentrant", "not reentrant"])
def test_a_part_that_is_used_twice_is_an_error(way: str) -> None:
    model = sb.rank1(Twice(blocks=1), members=2).train()
    model.net.way = WAYS[way]
    loss = model(torch.randn(5, 4)).square().mean()
    with pytest.raises(RuntimeError, match=r"blocks\.0\.before runs several times"):
        loss.backward()


def test_layers_are_not_called_outside_a_pass_for_all_that() -> None:
    """Also not after a backward pass whose outputs are still there."""
    model = sb.rank1(Blocks(), members=2).train()
    model.net.way = WAYS["not reentrant"]
    outputs = model(torch.randn(5, 4))
    with pytest.raises(RuntimeError, match="outside a forward pass"):
        model.net(torch.randn(10, 4))
    outputs.square().mean().backward()
    with pytest.raises(RuntimeError, match="outside a forward pass"):
        model.net.first(torch.randn(10, 4))
    assert len(model.member(0)(torch.randn(5, 4))) == 5


# ---------------------------------------------------------------------- Hugging Face's own switch


def text_to_text() -> dict[str, Tensor]:
    return {**inputs(), "decoder_input_ids": torch.randint(3, 50, (BATCH, 5))}


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize(("build", "make"), [(bert, inputs), (llama, inputs), (t5, text_to_text)])
def test_gradient_checkpointing_enable(build, make, freeze: bool) -> None:
    torch.manual_seed(0)
    net, batch, found = build().double(), make(), {}
    for way, options in WAYS.items():
        torch.manual_seed(1)
        model = sb.rank1(net, members=2, dropout_rate=0.2, freeze_base=freeze).train()
        if options is not None:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
            assert model.net.is_gradient_checkpointing
        torch.manual_seed(2)
        model(**batch).logits.square().mean().backward()
        found[way] = gradients(model)
    assert_equal(found["plain"], found["not reentrant"])
    assert_equal(found["plain"], found["reentrant"])
    model.gradient_checkpointing_disable()
    assert not model.net.is_gradient_checkpointing


def test_checkpointing_saves_memory() -> None:
    config = bert().config
    config.num_hidden_layers = 8
    net, kept = transformers.BertForSequenceClassification(config), []
    for enabled in (False, True):
        model = sb.rank1(net, members=2).train()
        if enabled:
            model.gradient_checkpointing_enable()
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, s=sizes: s.append(x.nbytes) or x, lambda x: x):
            model(**inputs())
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 3
