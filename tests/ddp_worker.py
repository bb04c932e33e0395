"""What each of two processes does in test_distributed.py: one table row after another, results to a file."""

import copy
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import slimbayes as sb
from cases import METHODS, NETWORKS, build, targets


def loss_of(model, elbo, x, seed):
    """Return a loss without noise, so that it can be computed again elsewhere."""
    outputs = model(x, samples=0)
    torch.manual_seed(seed)
    return elbo(outputs, targets(outputs))


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def row(method: str, network: str, rank: int) -> dict[str, bool]:
    model, _ = build(method, network)
    elbo = sb.ELBO(model, num_data=50)
    shards = []
    for seed in range(2):
        torch.manual_seed(seed)
        shards.append(NETWORKS[network].inputs(4))
    expected: dict[str, torch.Tensor] = {}
    for seed, shard in enumerate(shards):
        alone = copy.deepcopy(model)
        loss_of(alone, sb.ELBO(alone, num_data=50), shard, seed).backward()
        for name, gradient in gradients(alone).items():
            expected[name] = expected.get(name, 0) + gradient / 2
    parallel = DistributedDataParallel(model)
    loss_of(parallel, elbo, shards[rank], rank).backward()
    found = gradients(model)
    averaged = found.keys() == expected.keys() and all(
        torch.allclose(found[name], expected[name], rtol=1e-4, atol=1e-6) for name in expected
    )
    # A scale has no part in a pass without noise: its gradient is that of the KL alone, counted once. A Monte Carlo
    # KL is drawn after the targets, with each rank's seed.
    alone = copy.deepcopy(model)
    alone.zero_grad()
    names = (".rho", ".log_scale", ".log_u", ".log_v")
    scales = {n: p for n, p in alone.named_parameters() if n.endswith(names) and ".prior." not in n}
    for seed, shard in enumerate(shards):
        outputs = alone(shard, samples=0)
        torch.manual_seed(seed)
        targets(outputs)
        if scales:
            (alone.kl() / 50 / 2).backward()
    kl_once = all(torch.allclose(p.grad, found[n], rtol=1e-4, atol=1e-7) for n, p in scales.items())
    # A KL without scales that train, as Laplace's, has its part in the averaged gradients.
    kl_once = kl_once and (bool(scales) or alone.kl().item() == 0 or averaged)
    # Both ranks are seeded alike and see the same batch, yet draw different noise; where draws are whole networks,
    # training has no noise at all.
    torch.manual_seed(0)
    outputs = parallel(shards[0]).detach()
    gathered = [torch.empty_like(outputs) for _ in range(2)]
    dist.all_gather(gathered, outputs.contiguous())
    local = torch.equal(*gathered) != (METHODS[method].random and not model.coherent)
    torch.manual_seed(0)
    again = torch.equal(parallel(shards[0]), outputs)
    return {"averaged": averaged, "kl_once": kl_once, "noise_rank_local": local, "seeded": again}


def main(store: str, rank: int, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    results = {(m, n): row(m, n, rank) for m in METHODS for n in NETWORKS}
    torch.save(results, f"{out}.{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    os._exit(0)  # done; gloo's threads sometimes abort while the interpreter is torn down
