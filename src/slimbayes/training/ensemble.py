"""Deep ensembles whose members are trained apart: one after another, side by side, or on a Ray cluster."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimbayes._checks import check_choice, check_count
from slimbayes._seeds import Purpose, mix
from slimbayes.methods.deep_ensemble import MEMBERS
from slimbayes.methods.registry import get_method, method_names
from slimbayes.training._assembly import assemble
from slimbayes.training._cells import Cell
from slimbayes.training._local_processes import Outcomes, run_locally
from slimbayes.training._on_ray import import_ray, run_on_ray
from slimbayes.training.config import Method, TrainConfig
from slimbayes.training.engine import default_folder, fit
from slimbayes.training.grid import run_cells
from slimbayes.training.lock import alone_in
from slimbayes.training.models import check_method
from slimbayes.training.networks import check_network
from slimbayes.training.parsing import as_config
from slimbayes.training.run import Run

__all__ = ["MembersFailed", "fit_ensemble"]


class MembersFailed(RuntimeError):  # noqa: N818
    """Some members could not be trained; those that could are kept."""


@dataclass(frozen=True)
class Member(Cell):
    """A run that becomes a member.

    Attributes:
        index: Its position in the ensemble.
    """

    index: int

    @property
    def name(self) -> str:
        """Its folder in the members'."""
        return str(self.index)


def fit_ensemble(
    config: TrainConfig | Mapping[str, Any] | str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    members: int | None = None,
    *,
    on: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    quiet: bool = False,
) -> Run:
    """Train the members of a deep ensemble apart, and put their best checkpoints together.

    Each member is a run of its own in ``FOLDER/members/0`` and so on. They differ in their initial weights and in the
    order of the examples, by seeds that follow from ``seed``. The folder itself becomes the run of the ensemble, with
    its scores. If the likelihood learns a scale, each member has learned its own, and the ensemble's is set for the
    members' mixture, as it is for every run. Ordinal thresholds cannot be put together.

    Called again for the same folder, it leaves finished members alone and continues the others from their last
    checkpoints; with more ``members`` than before it trains the new ones only, with fewer it takes the first ones.

    Args:
        config: As for ``fit``, with the method ``deep_ensemble``, ``deterministic``, or none.
        folder: Where to write; ``runs/DATA-NET-deep_ensemble-seedSEED`` by default.
        members: Members K; by default those of ``method.members``, or 4.
        on: ``"local"`` for this machine; ``"ray"`` for a Ray cluster (extra ``cluster``), whose machines must share
            the folder.
        workers: Members side by side, in processes of one thread each. By default they are trained one after another
            in this process, with all its threads; on Ray, as many side by side as there are cores.
        address: Of the Ray cluster; by default ``$RAY_ADDRESS``, else an instance on this machine is started.
        progress: Called with the number of members that are done and of all.
        quiet: Say nothing.

    Returns:
        The ensemble's run: ``run.model()``, ``run.result``. ``result["members"]`` has the scores of each member.

    Raises:
        MembersFailed: Some members could not be trained; call it again when that is put right.

    Example:
        >>> import tempfile
        >>> config = {"data": "digits", "net": {"name": "mlp", "hidden": [16]}, "epochs": 1}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = fit_ensemble(config, folder, members=2, quiet=True)
        ...     more = fit_ensemble(config, folder, members=3, quiet=True)  # trains one
        ...     more.model().members, len(more.result["members"])
        (3, 3)
    """
    check_choice("on", on, ["local", "ray"])
    if workers is not None:
        check_count("workers", workers)
    if on == "ray":
        import_ray()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("Members are not trained under torchrun. Use `workers` for several processes, or Ray.")
    config = _of_ensemble(as_config(config), members)
    check_network(config.net)
    run = Run(default_folder(config) if folder is None else folder, trust=config.net.name)
    apart = run.folder.resolve() / "members"
    if run.exists() and not apart.is_dir():
        raise FileExistsError(f"{run.folder} holds another run, whose members were not trained apart. Give another.")

    def train(folders: list[Path]) -> Outcomes:
        if on == "ray":
            return run_on_ray(folders, workers, address)
        return _one_by_one(folders, quiet) if workers is None else run_locally(folders, workers)

    table = run_cells(_members(config), apart, train, progress, quiet, "members")
    if table.failed:
        told = [f"{row['folder']}: {row['error']} (log: {apart / row['log']})" for row in table.failed]
        number = f"{len(told)} of {len(table.rows)} members"
        raise MembersFailed("\n  ".join([f"{number} could not be trained; the others are kept:", *told]))
    if not run.exists() or run.result is None or run.config.as_json() != config.as_json():
        with alone_in(run.folder):
            assemble(run, config, [Run(apart / name, trust=config.net.name) for name in table.rows])
    return run


def _of_ensemble(config: TrainConfig, members: int | None) -> TrainConfig:
    """Return the configuration of the whole ensemble."""
    options = {}
    if "method" in config.model_fields_set:
        if config.method.name not in method_names() or not get_method(config.method.name).plain_members:
            raise ValueError(
                "Expected `method.name` to be deep_ensemble or deterministic, as the members are plain networks, but "
                f"got {config.method.name!r}. Use method=deep_ensemble."
            )
        check_method(config.method)
        options = config.method.options
    if options.get("train_on", "tile") != "tile":
        raise ValueError(
            "Expected `method.train_on` to be tile or left out, as members that are trained apart see all examples, "
            f"but got {options['train_on']!r}. Use slimbayes train (fit) to train them together."
        )
    likelihood = config.likelihood if isinstance(config.likelihood, str) else (config.likelihood or {}).get("name")
    if likelihood == "ordinal":
        raise ValueError(
            "Expected `likelihood` to be other than 'ordinal' for members that are trained apart: each would have "
            "thresholds of its own. Use slimbayes train (fit) with method=deep_ensemble to train them together."
        )
    count = options.get("members", MEMBERS) if members is None else members
    check_count("members", count)
    method = Method(**{**options, "name": "deep_ensemble", "members": count})
    return config.model_copy(update={"method": method})


def _members(config: TrainConfig) -> list[Member]:
    own = {name: value for name, value in config.method.options.items() if name == "batch_dim"}
    method = Method(name="deterministic", **own)
    members = []
    for index in range(config.method.options["members"]):
        seed = mix(config.seed, Purpose.MEMBER, index)
        one = config.model_copy(update={"method": method, "seed": seed})
        members.append(Member(method.name, None, seed, one, index))
    return members


def _one_by_one(folders: Iterable[Path], quiet: bool) -> Outcomes:
    """Train in this process; what goes wrong is raised."""
    for folder in folders:
        fit(Run.open(folder).config, folder, resume=True, quiet=quiet)
        yield folder, None
