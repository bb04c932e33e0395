"""Two processes, each with its shard of every case; for test_metric_streams.py, results to files."""

import os
import sys
import warnings

import torch
import torch.distributed as dist
from metric_cases import CASES, EXAMPLES

#: Examples that the first process sees: some, none, or all.
SHARES = (25, 0, EXAMPLES)


def main(store: str, rank: int, out: str) -> None:
    warnings.simplefilter("ignore")  # torchmetrics warns of a process that has seen nothing
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    results = {}
    for case in CASES:
        for share in SHARES:
            index = torch.arange(share) if rank == 0 else torch.arange(share, EXAMPLES)
            metric = case.metric()
            for part in index.split(16):
                if len(part):
                    metric.update(*case.shard(part))
            found = metric.compute()
            results[case.name, share] = tuple(found) if isinstance(found, tuple) else found
    torch.save(results, f"{out}.{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    CASES[0].metric()  # imports torchmetrics, which takes seconds, once for both
    child = os.fork()
    main(sys.argv[1], int(child == 0), sys.argv[2])
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
