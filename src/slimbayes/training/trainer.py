"""Everything that a run needs while it goes: epochs, scores, checkpoints."""

import itertools
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Generator, Tensor, nn

from slimbayes._chunks import NonFiniteOutput
from slimbayes._files import with_checksum, write_json
from slimbayes._provenance import provenance
from slimbayes._seeds import Purpose, mix, seed_everything
from slimbayes.data.fingerprint import fingerprint
from slimbayes.likelihoods import ScaleLikelihood
from slimbayes.methods.registry import method_of
from slimbayes.model import BayesianModel
from slimbayes.pretrained import load
from slimbayes.summary import count_parameters
from slimbayes.training._collecting import Collector, check_enough
from slimbayes.training._predictive_noise import predicting_noise
from slimbayes.training._progress import Progress
from slimbayes.training._watching import Watcher
from slimbayes.training.batches import Batches, ReplayedEpoch
from slimbayes.training.checkpoints import random_state, restore_random_state
from slimbayes.training.config import TrainConfig
from slimbayes.training.evaluation import evaluate
from slimbayes.training.loop import Loop
from slimbayes.training.memory import check_memory, check_network_size
from slimbayes.training.meter import Meter, NonFiniteLoss
from slimbayes.training.models import build_model, build_objective, configured_data, network_task
from slimbayes.training.networks import build_network
from slimbayes.training.rates import build_cycles, build_optimiser, build_schedule, restore_schedule, switch_noise
from slimbayes.training.run import Run

__all__ = ["AfterEpoch", "Trainer"]

#: Called after an epoch with its number and its validation scores.
AfterEpoch = Callable[[int, dict[str, float] | None], None]

#: Steps at the end of an epoch for whose outputs a likelihood's learned scale is set.
NOISE_STEPS = 100


class Trainer:
    """Everything that a run needs while it goes."""

    def __init__(
        self,
        config: TrainConfig,
        run: Run,
        accelerator: Accelerator,
        quiet: bool,
        after_epoch: AfterEpoch | None = None,
    ) -> None:
        self.after_epoch = after_epoch
        self.config, self.run, self.accelerator, self.quiet = config, run, accelerator, quiet
        self.main = accelerator.is_main_process
        seed_everything(config.seed)
        self.data = configured_data(config)
        self.batches = self._batches(accelerator.process_index, accelerator.num_processes, config.accumulate)
        self.steps = config.steps or (config.epochs or 0) * self.batches.steps
        self.epochs = math.ceil(self.steps / self.batches.steps)
        seed_everything(config.seed)
        index = run.checkpoints.index()
        self.first = 0 if index is None else index.epoch
        if index is not None:
            run.check_data(self.data)
        state = None if index is None else run.checkpoints.state()
        if state is not None:
            self._check_length(state)
        check_network_size(config.net, config, self.data)
        build = partial(build_network, config.net, network_task(config, self.data.task))
        self.bare = build_model(config.method, build) if index is None else load(run.checkpoints.path("last"), build())
        self.bare.train()
        self._prepare(0 if state is None else state["elbo"]["steps"])
        self.seconds, self.cpu_seconds = 0.0, 0.0
        self.clock, self.over = time.perf_counter(), False
        check_memory(config, self.bare, self.data, quiet or not self.main)
        if self.main:
            self._begin(state is None)
        accelerator.wait_for_everyone()
        if state is None:
            seed_everything(mix(config.seed, Purpose.NOISE, accelerator.process_index))
        else:
            self._restore(state)
        done = min(self.steps, self.first * self.batches.steps)
        path = run.folder / "metrics.jsonl" if self.main else None
        title = f"{config.method.name} on {config.data.name}"
        self.progress = Progress(path, self.steps, done, quiet, title)

    # ------------------------------------------------------------------ setting up

    def _batches(self, rank: int, processes: int, parts: int = 1) -> Batches:
        config = self.config
        return Batches(
            self.data.train,
            min(config.batch_size, len(self.data.train)),
            self.data.preparation,
            self.data.augmentation,
            config.seed,
            parts,
            rank,
            processes,
            config.data.workers,
            self.accelerator.device.type == "cuda",
        )

    def _prepare(self, done: int) -> None:
        config, accelerator = self.config, self.accelerator
        self.cycles = build_cycles(config.schedule, self.steps)
        self.collector = None
        if self.bare.needed:
            self.collector = Collector(config.collect, self.steps, self.batches.steps, self.cycles)
            check_enough(self.collector, self.bare, done)
        elbo = build_objective(config, self.bare, self.data.task, len(self.data.train), self.steps)
        channels_last = config.channels_last and any(isinstance(part, nn.Conv2d) for part in self.bare.modules())
        if channels_last:
            self.bare.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # One seed for all processes: they move the same chains.
        self.chain_noise = Generator(accelerator.device).manual_seed(mix(config.seed, Purpose.CHAINS))
        optimiser = build_optimiser(config.optimiser, self.bare, len(self.data.train), self.chain_noise)
        schedule = build_schedule(
            config.schedule,
            optimiser,
            self.batches.steps,
            self.steps,
            None if self.collector is None else self.collector.begins,
        )
        model, prepared = accelerator.prepare(self.bare, optimiser)
        clip = config.optimiser.clip_norm
        self.watcher = None
        if config.watch.every is not None or config.watch.snr:
            self.watcher = Watcher(config.watch, self.bare, self.data, config.seed)
        look = None if self.watcher is None else self.watcher.gradients
        self.loop = Loop(accelerator, model, elbo, prepared, schedule, clip, channels_last, look)

    def _begin(self, new: bool) -> None:
        # Two moments for each parameter at most, as Adam has.
        self.run.check_writable(3 * sum(p.nbytes for p in self.bare.parameters()))
        if new:
            about = {
                "seed": self.config.seed,
                "parameters": count_parameters(self.bare),
                "method_options": self.bare.options,
                "processes": self.accelerator.num_processes,
                "data": fingerprint(self.data),
                **provenance(),
            }
            self.run.begin(about, self.data.task, self.data.preparation)
        self.run.store_config(self.config)
        self.run.tidy()
        self.run.checkpoints.clean(self.run.checkpoints.index())
        self.run.cut_metrics(self.first)
        if self.config.trackers:
            self.accelerator.init_trackers(self.run.folder.name)

    def _check_length(self, state: dict[str, Any]) -> None:
        config, done = self.config, state["elbo"]["steps"]
        so_far = f"the run in {self.run.folder} has done {self.first} epochs and {done} steps"
        if self.first > self.epochs or (config.steps or done) < done:
            raise ValueError(f"Expected `epochs` or `steps` to be no less than before, but {so_far}. Give more.")
        if done < self.steps and not state["whole"]:
            raise ValueError(
                f"Cannot continue with more `epochs` or `steps`: {so_far}, and ended within an epoch. Give another "
                "folder."
            )

    def _restore(self, state: dict[str, Any]) -> None:
        self.loop.optimiser.load_state_dict(state["optimiser"])
        restore_schedule(self.loop.schedule, state["schedule"])
        self.loop.elbo.load_state_dict(state["elbo"])
        if state.get("rho") is not None:  # the checkpoint has the noise of predictions; not in earlier versions' runs
            assert isinstance(self.bare.likelihood, ScaleLikelihood)
            assert self.bare.likelihood.rho is not None
            self.bare.likelihood.rho.data.copy_(state["rho"])
        if "chain_noise" in state:  # not in runs of an earlier version
            self.chain_noise.set_state(state["chain_noise"])
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.seconds = state["seconds"]
        self.clock = time.perf_counter() - state.get("spent", self.seconds)  # not in runs of an earlier version
        self.over = state.get("over", False)
        self.cpu_seconds = state.get("cpu_seconds", math.nan)  # not in runs of an earlier version
        if self.watcher is not None:
            self.watcher.load_state_dict(state["watch"])
        rank = self.accelerator.process_index
        if rank < len(state["random"]):
            restore_random_state(state["random"][rank])
        else:  # more processes than before
            seed_everything(mix(self.config.seed, Purpose.NOISE, rank, self.first))

    # ------------------------------------------------------------------ training

    def train(self) -> None:
        """Train the epochs that are left, then score the best checkpoint."""
        for epoch in range(self.first, self.epochs):
            if self.over and self._out_of_time():  # it had ended, but for its result
                self.epochs = epoch
                break
            start, cpu_start = time.perf_counter(), time.process_time()
            try:
                means = self.epoch(epoch)
                self._check_weights()
                self.seconds += time.perf_counter() - start - self._watched()
                self.cpu_seconds += time.process_time() - cpu_start
                self.over = self._out_of_time()
                if self.over:
                    self.epochs = epoch + 1
                self._finish_epoch(epoch + 1, means)
            except (NonFiniteLoss, NonFiniteOutput) as error:
                good = self.run.checkpoints.last_good()
                raise NonFiniteLoss(
                    f"{str(error).rstrip('.')}. {good} Try a lower learning rate, or clip_norm."
                ) from None
        self._finish()

    def _out_of_time(self) -> bool:
        limit = self.config.max_seconds
        if limit is None:
            return False
        spent = time.perf_counter() - self.clock >= limit
        return bool(self._total(torch.tensor([float(spent)])) > 0)  # all processes end together

    def epoch(self, epoch: int) -> dict[str, Any]:
        """Train one epoch, counted from 0; return the means of its terms."""
        config, loop = self.config, self.loop
        patience = 1 if self.accelerator.device.type == "cpu" else config.log_every
        meter = Meter(patience)
        self.bare.train()
        self.progress.throughput()
        parts = self.batches.epoch(epoch)
        start, done = time.perf_counter(), 0
        steps = min(self.batches.steps, self.steps - epoch * self.batches.steps)
        for left in range(steps, 0, -1):
            lr = float(loop.schedule.get_last_lr()[0])
            if self.cycles is not None:
                switch_noise(loop.optimiser, self.cycles.sampling(loop.elbo.steps))
            examples = loop.step(itertools.islice(parts, config.accumulate), meter, left <= NOISE_STEPS)
            if self.collector is not None and self.collector.due(loop.elbo.steps):
                self._check_weights()
                self.bare.collect()
            examples *= self.accelerator.num_processes
            done += examples
            self.progress.step(examples)
            if self.watcher is not None and self.main:
                self._watch(self.watcher, epoch, time.perf_counter() - start)
            if loop.elbo.steps % config.log_every == 0:
                self._log(epoch, meter, lr)
        loop.fit_scale(self._total)
        rate = done / (time.perf_counter() - start)
        return {**meter.whole(self._total)._asdict(), "lr": lr, "examples_per_second": rate}

    def _total(self, own: Tensor) -> Tensor:
        return self.accelerator.reduce(own.to(self.accelerator.device), "sum").cpu()

    def _log(self, epoch: int, meter: Meter, lr: float) -> None:
        means, rate = meter.recent(self._total), self.progress.throughput()
        step = self.loop.elbo.steps
        self.progress.during(epoch + 1, step, means, lr, rate)
        if self.config.trackers:
            values = {f"train/{name}": value for name, value in means._asdict().items() if value is not None}
            self.accelerator.log({**values, "train/lr": lr}, step)

    def _watch(self, watcher: Watcher, epoch: int, seconds: float) -> None:
        step, before = self.loop.elbo.steps, self.seconds + seconds - watcher.seconds  # of training alone
        seen = watcher.after(step)
        if seen is not None:
            self.progress.watched(epoch + 1, step, before, seen)

    def _watched(self) -> float:
        """Return the seconds that the watcher took in this epoch, and start counting again."""
        if self.watcher is None:
            return 0.0
        seconds, self.watcher.seconds = self.watcher.seconds, 0.0
        return seconds

    def _check_weights(self) -> None:
        """A finite loss may have had gradients that are not, and a checkpoint must be good."""
        for name, parameter in self.bare.named_parameters():
            if not parameter.isfinite().all():
                raise NonFiniteLoss(f"the parameter {name} is not finite after step {self.loop.elbo.steps}")

    def _finish_epoch(self, epoch: int, means: dict[str, Any]) -> None:
        config = self.config
        method = method_of(self.bare)
        if epoch == self.epochs and method is not None and method.finish is not None:
            # Every process does the same on all examples.
            examples = ReplayedEpoch(self._batches(0, 1), self.epochs)
            seed, collect = mix(config.seed, Purpose.FINISH), config.collect
            method.finish(
                self.loop.elbo, examples, draws=collect.draws, inference=collect.inference, seed=seed, quiet=self.quiet
            )
        self._share_buffers(self.bare)
        with predicting_noise(self.bare, self.data, config.seed) as rho:
            self._score_and_store(epoch, means, rho)

    def _score_and_store(self, epoch: int, means: dict[str, Any], rho: Tensor | None) -> None:
        """Validate and write a checkpoint of a model with its predictive noise; ``rho`` is to train on with."""
        config, step = self.config, self.loop.elbo.steps
        # One draw of each member unless told otherwise: an epoch is not to wait long for its scores.
        samples = 1 if config.evaluation.samples is None else config.evaluation.samples
        validation = None
        if self.data.validation is not None and (epoch % config.evaluation.every == 0 or epoch == self.epochs):
            validation = self._scores(self.bare, "validation", samples)
            if not math.isfinite(validation["nll"]):
                raise NonFiniteLoss(f"the validation NLL is not finite after step {step}: {validation}")
        states = gather_object([random_state()])
        if self.main:
            scaler = self.accelerator.scaler
            state = {
                "optimiser": self.loop.optimiser.state_dict(),
                "schedule": self.loop.schedule.state_dict(),
                "elbo": self.loop.elbo.state_dict(),
                "rho": rho,
                "chain_noise": self.chain_noise.get_state(),
                "whole": epoch * self.batches.steps <= self.steps,
                "scaler": None if scaler is None else scaler.state_dict(),
                "random": states,
                "seconds": self.seconds,
                "spent": time.perf_counter() - self.clock,
                "over": self.over,
                "cpu_seconds": self.cpu_seconds,
                "watch": {} if self.watcher is None else self.watcher.state_dict(),
            }
            # Stored before, so that no epoch lacks its line: a line whose checkpoint never came is cut off on resuming.
            self.progress.store(epoch, step, means, validation)
            # What collects has its best posterior at the end, however well one epoch's weights do.
            nll = None if validation is None or self.collector is not None else validation["nll"]
            self.run.checkpoints.save(self.bare, state, epoch, nll)
            self.progress.show(epoch, self.epochs, means, validation, self.bare.members * max(1, samples))
        if validation is not None and config.trackers:
            self.accelerator.log({f"validation/{name}": value for name, value in validation.items()}, step)
        self.accelerator.wait_for_everyone()
        if self.main and self.after_epoch is not None:
            self.after_epoch(epoch, validation)

    def _share_buffers(self, model: BayesianModel) -> None:
        if self.accelerator.num_processes > 1:
            for buffer in model.buffers():  # such as a norm layer's statistics: each process has its own
                torch.distributed.broadcast(buffer, 0)

    def _scores(self, model: BayesianModel, part: str, samples: int) -> dict[str, float]:
        self._share_buffers(model)
        # Before there is something to draw from, the weights as they are.
        config = self.config.evaluation.model_copy(update={"samples": samples if model.ready else 0})
        return evaluate(model, getattr(self.data, part), self.data, config, self.config.seed, self.accelerator)

    def _finish(self) -> None:
        index = self.run.checkpoints.index()
        assert index is not None
        scores: dict[str, Any] = {"validation": None, "test": None}
        best = load(self.run.checkpoints.path("best"), self.run.network(), self.accelerator.device).eval()
        samples = self.config.evaluation.samples
        samples = best.default_samples if samples is None else samples
        for part in scores:
            wanted = part == "validation" or self.config.evaluation.test
            if wanted and getattr(self.data, part) is not None:
                scores[part] = self._scores(best, part, samples)
        if self.main:
            result = {
                "length": self.config.length,
                "epochs": self.epochs,
                "steps": self.loop.elbo.steps,
                "best": index.best,
                **scores,
                "draws": best.members * max(1, samples),
                "seconds": self.seconds,
                "cpu_seconds": None if math.isnan(self.cpu_seconds) else self.cpu_seconds,
                "seed": self.config.seed,
                "parameters": count_parameters(self.bare),
                **provenance(),
            }
            write_json(self.run.folder / "result.json", with_checksum(result))
        self.accelerator.wait_for_everyone()

    def close(self) -> None:
        """Finish the progress report, and end processes that fetch batches."""
        self.progress.close()
        self.batches.close()
