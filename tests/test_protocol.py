"""Every (method, network) case keeps the protocol of a BayesianModel."""

import copy
import io
import pickle

import pytest
import torch

import slimbayes as sb
from cases import BATCH, CASES, CLASSES, METHODS, NETWORKS, build, targets

pytestmark = pytest.mark.parametrize(("method", "network"), CASES)


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


def test_draws_come_first(method, network):
    model, x = build(method, network)
    members = model.members
    rest = (BATCH, 5, CLASSES) if network == "mlp_3d" else (BATCH, CLASSES)
    assert model(x).shape == (members, *rest)
    assert model(x, samples=3).shape == (members * 3, *rest)
    assert model(x, samples=0).shape == (members, *rest)
    assert model(x, noise="shared", samples=2).shape == (members * 2, *rest)


def test_draws_are_member_major(method, network):
    model, x = build(method, network)
    model.eval()
    locations = model(x, samples=0)
    draw = model.draw(2, seeded())
    outputs = model(x, draw=draw)
    for k in range(model.members):
        torch.testing.assert_close(_plain(model.member(k), x), locations[k], rtol=1e-4, atol=1e-5)
        for s in range(2):
            if not METHODS[method].foldable:
                with pytest.raises(ValueError, match="cannot be folded into weights"):
                    model.member(k, sample=s, draw=draw)
                alone = model(x, draw={name: value[s : s + 1] for name, value in draw.items()})
                torch.testing.assert_close(alone[0], outputs[s], rtol=1e-4, atol=1e-5)
                continue
            folded = model.member(k, sample=s, draw=draw)
            torch.testing.assert_close(_plain(folded, x), outputs[2 * k + s], rtol=1e-4, atol=1e-5)


def test_a_member_folds_the_draw_of_a_shared_pass_under_the_same_generator(method, network):
    model, x = build(method, network)
    model.eval()
    outputs = model(x, noise="shared", generator=seeded())
    if not METHODS[method].foldable:
        torch.testing.assert_close(model(x, draw=model.draw(1, seeded())), outputs)
        with pytest.raises(ValueError, match="cannot be folded into weights"):
            model.member(0, generator=seeded())
        return
    for k in range(model.members):
        folded = model.member(k, generator=seeded())
        torch.testing.assert_close(_plain(folded, x), outputs[k], rtol=1e-4, atol=1e-5)


def _plain(net, x):
    with torch.no_grad():
        return net(x)


def test_a_member_is_a_plain_network(method, network):
    model, _ = build(method, network)
    plain = NETWORKS[network].build()
    folded = model.member(0)
    assert [type(m) for m in folded.modules()] == [type(m) for m in plain.modules()]
    assert {k: v.shape for k, v in folded.state_dict().items()} == {k: v.shape for k, v in plain.state_dict().items()}


def test_backward_reaches_every_parameter(method, network):
    model, x = build(method, network)
    elbo = sb.ELBO(model, num_data=100)
    outputs = model(x)
    elbo(outputs, targets(outputs)).backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not silent
    still = [n for n, p in model.named_parameters() if not p.grad.any()]
    # Softmax ignores a shift, attention ignores a shift of the keys, and batch norm one before it: these biases
    # have no gradient in the plain network either.
    assert all(n.endswith(("in_proj_bias", "bias")) for n in still)


def test_deepcopy_and_pickle_after_a_forward_pass(method, network):
    model, x = build(method, network)
    model(x).sum().backward()
    expected = model(x, generator=seeded())
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x, generator=seeded()), expected)
        twin.net.get_parameter(next(iter(dict(twin.net.named_parameters())))).data.add_(1)
    assert torch.equal(model(x, generator=seeded()), expected)


def test_save_and_load(method, network, tmp_path):
    model, x = build(method, network)
    model(x)  # moves running statistics
    model.save_pretrained(tmp_path)
    torch.manual_seed(99)
    again = sb.load(tmp_path, NETWORKS[network].build())
    for samples in (0, 2):
        before, after = (m.eval()(x, samples=samples, generator=seeded()) for m in (model, again))
        assert torch.equal(before, after)
    divergences = []
    for twin in (model, again):
        torch.manual_seed(0)  # a Student-t's KL is a Monte Carlo estimate
        divergences.append(twin.kl())
    assert torch.equal(*divergences)


def test_state_dict_has_no_duplicates(method, network):
    model, _ = build(method, network)
    state = model.state_dict()
    tied = {".decoder.weight", ".again."} if network == "tied" else set()
    own = {k: v for k, v in state.items() if not any(name in k for name in tied)}
    addresses = [v.data_ptr() for v in own.values() if v.numel()]
    assert len(addresses) == len(set(addresses))
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))


def test_autocast_bfloat16(method, network):
    model, x = build(method, network)
    exact = model(x, samples=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(x, samples=0)
        sampled = model(x)
    assert outputs.dtype == torch.bfloat16
    torch.testing.assert_close(outputs.float(), exact, rtol=0.1, atol=0.1)
    sampled.float().logsumexp(-1).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-4), (torch.bfloat16, 0.1)])
def test_models_of_another_precision_compute_the_same(method, network, dtype, error):
    model, x = build(method, network)
    model.eval()
    expected = model(x, samples=0)
    model.to(dtype)
    x = x if isinstance(x, torch.Tensor) and not x.is_floating_point() else x.to(dtype)
    outputs = model(x, samples=0)
    assert outputs.dtype == model(x).dtype == dtype
    torch.testing.assert_close(outputs.float(), expected, rtol=error, atol=error)
    assert model.kl().isfinite()


def test_functional_call(method, network):
    model, x = build(method, network)
    model.eval()
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    doubled = {k: v * 2 if k.endswith("loc") else v for k, v in parameters.items()}
    result = torch.func.functional_call(model, doubled, (x,), {"samples": 0})
    with torch.no_grad():
        for k, v in model.named_parameters():
            v.copy_(doubled[k])
    torch.testing.assert_close(result, model(x, samples=0))


def test_train_and_eval_mean_what_they_mean_in_torch(method, network):
    model, x = build(method, network)
    running = {k: v.clone() for k, v in model.named_buffers()}
    model.eval()
    model(x)
    assert all(torch.equal(v, running[k]) for k, v in model.named_buffers())
    assert torch.equal(model(x, samples=0), model(x, samples=0))
    differ = not torch.equal(model(x), model(x))
    assert differ == METHODS[method].random  # sampling is not a matter of the mode
    model.train()
    model(x)
    assert network != "resnet" or any(not torch.equal(v, running[k]) for k, v in model.named_buffers())
    model.predict(x)
    assert model.training


def test_seeds(method, network):
    model, x = build(method, network)
    model.eval()
    assert torch.equal(model(x, generator=seeded(1)), model(x, generator=seeded(1)))
    torch.manual_seed(5)
    first = model(x)
    torch.manual_seed(5)
    assert torch.equal(first, model(x))
    assert torch.equal(model.predict(x, seed=7).draws, model.predict(x, seed=7).draws)
    if METHODS[method].random:
        assert not torch.equal(model.predict(x, seed=7).draws, model.predict(x, seed=8).draws)


def test_the_given_network_is_untouched(method, network):
    torch.manual_seed(1)
    net = NETWORKS[network].build()
    before = copy.deepcopy(net)
    model = METHODS[method].convert(net, **METHODS[method].options)
    model.requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(1)
    assert [type(m) for m in net.modules()] == [type(m) for m in before.modules()]
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), before.state_dict().values(), strict=True))
    assert all(p.requires_grad for p in net.parameters())


def test_weights_are_kept(method, network):
    torch.manual_seed(1)
    net = NETWORKS[network].build().eval()
    x = NETWORKS[network].inputs(BATCH)
    chosen = METHODS[method]
    model = chosen.convert(net, **{**chosen.options, **chosen.neutral}).eval()
    expected = net(x).expand(model.members, *net(x).shape)
    torch.testing.assert_close(model(x, samples=0), expected, rtol=1e-4, atol=1e-5)
