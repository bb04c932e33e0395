"""Where a step's time goes, operator by operator."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

__all__ = ["hot_spots"]

#: Seconds that a profile may take.
SECONDS = 1.0


def hot_spots(
    step: Callable[[], object], seconds: float, device: torch.device | None = None, top: int = 20
) -> list[dict[str, Any]]:
    """Profile a few steps and return the operators that take longest.

    Args:
        step: Is called two to six times.
        seconds: About how long it takes; long steps are called less often.
        device: Where it runs; None for the CPU.
        top: Operators to return.

    Returns:
        By operator, longest first: its name, its calls in a step, the milliseconds of a step that are its own
        (without the operators that it calls; on a GPU the GPU's), and their share of all.

    Example:
        >>> x = torch.randn(20, 20)
        >>> {spot["operator"]: spot["calls"] for spot in hot_spots(lambda: x @ x @ x, seconds=1e-3)}["aten::mm"]
        2.0
    """
    steps = max(1, min(5, round(SECONDS / seconds)))
    on_gpu = device is not None and device.type == "cuda"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it tells the terminal that it starts and stops
    step()
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_gpu]
    with profile(activities=activities, acc_events=True) as profiler:
        for _ in range(steps):
            step()
    events = profiler.key_averages()
    own = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    total = sum(getattr(event, own) for event in events) or 1.0
    return [
        {
            "operator": event.key,
            "calls": event.count / steps,
            "milliseconds": getattr(event, own) / 1000 / steps,
            "share": getattr(event, own) / total,
        }
        for event in sorted(events, key=lambda event: getattr(event, own), reverse=True)[:top]
    ]
