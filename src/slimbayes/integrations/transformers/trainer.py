"""Hugging Face's ``Trainer`` for models with draws: the KL in the loss, mixtures in evaluation, small checkpoints."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Generator, Tensor, nn
from transformers.trainer_utils import EvalPrediction
from transformers.utils import find_labels

from slimbayes._checks import check_count
from slimbayes.integrations.transformers._card import write_card
from slimbayes.integrations.transformers._reading import (
    Scores,
    aligned,
    count,
    likelihood_of,
    network_of,
    predictions,
    shifts,
)
from slimbayes.likelihoods import Likelihood
from slimbayes.model import BayesianModel, unwrapped
from slimbayes.objective import ELBO
from slimbayes.prediction import Prediction
from slimbayes.pretrained import restore
from slimbayes.schedules import Schedule, linear_annealing

__all__ = ["Trainer"]


class Trainer(transformers.Trainer):
    r"""``transformers.Trainer`` for a ``BayesianModel``; everything that is not named here is as it was.

    What is minimised is the ELBO of the training set for each target (of language models: each token),

    .. math::
        \frac{B}{T} \Big( -\frac1B \sum_b \log p(y_b \mid f) + \frac{\beta_t}{N K} \sum_k KL(q_k \| p) \Big)

    over a step's B examples with T targets, whatever micro-batches and processes they are dealt to; the KL counts once.
    :math:`\beta_t` grows to 1 over the first two thirds of the run. Parameters that have a KL have no weight decay.

    ``predict`` returns one row for each example: the log-probabilities of the mixture over draws (of numbers, its
    mean). ``evaluate`` and ``predict`` add to the metrics ``nll``, ``accuracy``, ``ece``, ``entropy`` and
    ``mutual_information`` (of numbers: ``nll``, ``rmse``, ``std``); ``loss`` is ``nll``. A ``compute_metrics`` of yours
    gets those log-probabilities as predictions.

    A checkpoint's ``config.json`` and ``model.safetensors`` are those of ``model.save_pretrained``: with
    ``freeze_base=True`` factors alone. ``sb.load(folder, net)`` reads them.

    Args:
        model: Made by ``sb.rank1(net)`` or another method.
        args: ``transformers.TrainingArguments``.
        *rest: What ``transformers.Trainer`` takes next, by position or by name.
        likelihood: A name or a ``Likelihood``; None for the one that the network's own loss stands for.
        num_data: Number N of training examples; None for ``len(train_dataset)``.
        beta: Weight of the KL, a number or a function of the step; None for ``sb.linear_annealing`` over two thirds of
            the run.
        samples: Draws of each member in training.
        eval_samples: Draws of each member in evaluation; None for ``model.default_samples``.
        objective: See ``sb.ELBO``.
        member_kl: See ``sb.ELBO``; ``"mean"``, the mixture's bound, is the default here.
        factor_lr: Learning rate of what conversion added, factors or standard deviations; None for
            ``args.learning_rate``.
        **kwargs: What ``transformers.Trainer`` takes, such as ``train_dataset``.

    Example:
        >>> import slimbayes as sb, tempfile
        >>> network = transformers.BertConfig(
        ...     hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=9)
        >>> net = transformers.BertForSequenceClassification(network)
        >>> data = [{"input_ids": [1, 2, i % 9], "labels": i % 2} for i in range(8)]
        >>> args = transformers.TrainingArguments(tempfile.mkdtemp(), use_cpu=True, disable_tqdm=True)
        >>> trainer = Trainer(sb.rank1(net, trained=True), args, train_dataset=data)
        >>> trainer.predict(data).predictions.shape
        (8, 2)
    """

    def __init__(
        self,
        model: Any = None,
        args: Any = None,
        *rest: Any,
        likelihood: str | Likelihood | None = None,
        num_data: int | None = None,
        beta: float | Schedule | None = None,
        samples: int = 1,
        eval_samples: int | None = None,
        objective: str = "average",
        member_kl: str = "mean",
        factor_lr: float | None = None,
        **kwargs: Any,
    ) -> None:
        check_count("samples", samples, 0)
        if eval_samples is not None:
            check_count("eval_samples", eval_samples, 0)
        if num_data is not None:
            check_count("num_data", num_data)
        self.samples, self.eval_samples, self.num_data = samples, eval_samples, num_data
        self.factor_lr = factor_lr
        self._asked = {"objective": objective, "member_kl": member_kl}
        self._likelihood: Any = likelihood
        self._beta = beta
        self._elbo: ELBO | None = None
        self._terms: dict[str, Any] = {}
        if model is not None:
            self._prepare(unwrapped(model)[-1], args)
        super().__init__(model, args, *rest, **kwargs)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError(
                "Expected argument `args` to train on one process or with DistributedDataParallel, but got FSDP or "
                "DeepSpeed, which take the parameters apart that the KL is a function of. Leave them out."
            )
        self._read_network()
        if self.label_smoother is not None:
            raise ValueError(
                f"Expected argument `label_smoothing_factor` of `args` to be 0, but got "
                f"{self.args.label_smoothing_factor}. Give likelihood=sb.Categorical(label_smoothing=...)."
            )
        if self.compute_loss_func is not None:
            raise ValueError(
                "Expected no argument `compute_loss_func`, which knows no KL, but got one. Give `likelihood`, which "
                "may be a function (outputs, targets) -> log-likelihood of shape (draws, batch)."
            )
        self.loss_is_scaled_for_ga = True  # ours is over the whole of the accumulated batch
        self._own_metrics(self.compute_metrics, self.preprocess_logits_for_metrics)

    # ------------------------------------------------------------------ the model

    @property
    def bayesian(self) -> BayesianModel:
        """The model, without what wraps it."""
        found: BayesianModel = unwrapped(self.model)[-1]
        return found

    @property
    def network(self) -> Any:
        """The Hugging Face network in the model; of PEFT's, the one within."""
        return network_of(self.bayesian)

    def _prepare(self, model: BayesianModel, args: Any) -> None:
        """Give the model its likelihood, whose parameters must be there before the optimiser and wrappers."""
        if not hasattr(model._first_network, "config"):
            raise TypeError(
                f"Expected argument `model` to be made of a Hugging Face network, but got one made of a "
                f"{type(model._first_network).__name__}, which has no `config`. Train it with sb.ELBO and a loop."
            )
        asked = self._likelihood
        if asked is None:
            asked = likelihood_of(network_of(model)) if model.likelihood is None else model.likelihood
        ELBO(model, 1, asked)
        self._likelihood = model.likelihood
        if args is not None and args.ddp_find_unused_parameters is None:
            # It looks for parameters among the outputs of the network alone, and takes those that only the KL depends
            # on (scales with samples=0, a prior's) for unused.
            args.ddp_find_unused_parameters = False

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """Make a model with ``model_init``."""
        model = super().call_model_init(trial)
        self._elbo = None
        self._prepare(unwrapped(model)[-1], self.args)
        return model

    def _read_network(self) -> None:
        """Tell the base class what it would have read off a class of Hugging Face's."""
        if self.args.label_names is None:
            self.label_names = find_labels(type(self.network))
        if len(self.label_names) > 1:
            raise ValueError(
                f"Expected a network with one kind of label, but {type(self.network).__name__} has "
                f"{self.label_names}. Name the one to learn: TrainingArguments(label_names=[...])."
            )
        self.label_names = self.label_names or ["labels"]
        self.can_return_loss = False
        self.model_accepts_loss_kwargs = False

    def _set_signature_columns_if_needed(self) -> None:
        """Keep the columns that the network takes."""
        if getattr(self, "_signature_columns", None) is None:
            names = list(inspect.signature(self.network.forward).parameters)
            self._signature_columns = [*names, "label", "label_ids", *self.label_names]

    # ------------------------------------------------------------------ training

    @property
    def elbo(self) -> ELBO:
        """What is minimised; its schedule is where the run is."""
        if self._elbo is None:
            size = self.num_data
            if size is None and hasattr(self.train_dataset, "__len__"):
                size = len(self.train_dataset)
            if size is None:
                raise ValueError(
                    "Expected argument `num_data`, the number of training examples, by which the KL is divided: the "
                    "training set does not say how long it is."
                )
            beta = linear_annealing(max(1, 2 * self.state.max_steps // 3)) if self._beta is None else self._beta
            self._elbo = ELBO(self.bayesian, size, self._likelihood, beta=beta, **self._asked)
        self._elbo.steps = self.state.global_step
        return self._elbo

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._elbo = None  # a run may have another number of steps than the last one
        return super()._inner_training_loop(*args, **kwargs)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return the names of parameters with weight decay: not those that have a KL."""
        decayed = set(super().get_decay_parameter_names(model))
        return [name for name, p in model.named_parameters() if name in decayed and id(p) not in self._with_kl()]

    def _with_kl(self) -> set[int]:
        model = self.bayesian
        means = (mean for part in model.stochastic() for mean in part.own_means())
        learned = () if model.likelihood is None else model.likelihood.parameters()
        return {id(p) for ps in (model.added_parameters(), means, learned) for p in ps}

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Make the optimiser, with ``factor_lr`` for what conversion added."""
        made = self.optimizer is None
        optimizer = super().create_optimizer() if model is None else super().create_optimizer(model)
        if made and self.factor_lr is not None:
            added = {id(p) for p in self.bayesian.added_parameters()}
            for group in list(optimizer.param_groups):
                own = [p for p in group["params"] if id(p) in added]
                if own:
                    group["params"] = [p for p in group["params"] if id(p) not in added]
                    options = {key: value for key, value in group.items() if key != "params"}
                    optimizer.add_param_group({**options, "params": own, "lr": self.factor_lr})
        return optimizer

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """Return the batches of one step, and how many examples and targets they have in all processes."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches or self.label_names[0] not in batches[0]:
            return batches, None
        targets = [batch[self.label_names[0]] for batch in batches]
        shifted = shifts(self.network)
        counts = torch.stack([torch.tensor([len(one), int(count(one, shifted))]) for one in targets]).sum(0).to(device)
        return batches, self.accelerator.reduce(counts, "sum")

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Tensor | None = None
    ) -> Any:
        """Return this process's and micro-batch's part of the loss of a step."""
        targets, inputs = self._split(inputs)
        if targets is None:
            raise ValueError(
                f"Expected batches with {self.label_names[0]!r}, but got {', '.join(inputs)}. Name the targets: "
                "TrainingArguments(label_names=[...])."
            )
        outputs = model(**inputs, samples=self.samples)
        elbo, parts = self.elbo, self.accelerator.num_processes * self.current_gradient_accumulation_steps
        shifted = shifts(self.network)
        examples, items = (parts * len(targets), 0) if num_items_in_batch is None else num_items_in_batch.tolist()
        items = items or parts * max(1, int(count(targets, shifted)))
        logits, about = aligned(outputs, targets, shifted)
        terms = elbo.terms(logits, about)
        share = parts * len(targets) / examples  # 1 where all parts are of one size
        loss = elbo.loss(terms.nll * share, terms.kl, terms.beta) * (examples / items)
        self._terms = {"kl": terms.kl.detach(), "beta": terms.beta}
        # The base class adds up micro-batches; DistributedDataParallel takes the mean over processes.
        loss = loss / self.current_gradient_accumulation_steps
        return (loss, outputs) if return_outputs else loss

    def _split(self, inputs: Any) -> tuple[Tensor | None, dict[str, Any]]:
        """Return the targets, and the network's inputs without them: its own loss, which has no KL, is not computed."""
        inputs = dict(inputs)
        targets = inputs.pop(self.label_names[0], None)
        network, decoded = self.network, {"decoder_input_ids", "decoder_inputs_embeds"}
        if targets is not None and getattr(network.config, "is_encoder_decoder", False) and not decoded & set(inputs):
            if hasattr(network, "prepare_decoder_input_ids_from_labels"):
                inputs["decoder_input_ids"] = network.prepare_decoder_input_ids_from_labels(targets)
            else:
                inputs[self.label_names[0]] = targets  # it makes its decoder's inputs of them
        return targets, inputs

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log the KL and its weight beside the loss."""
        if "loss" in logs and self._terms:
            logs.update({name: float(value) for name, value in self._terms.items()})
        super().log(logs, *args, **kwargs)

    # ------------------------------------------------------------------ evaluation

    def _own_metrics(self, metrics: Callable[..., Any] | None, change: Callable[..., Any] | None) -> None:
        """Let functions of the user see log-probabilities alone, not the scores that are gathered beside them."""
        self._wants_predictions = metrics is not None
        if metrics is not None:
            self.compute_metrics = lambda p, **kwargs: metrics(_with_predictions(p, p.predictions[1]), **kwargs)
        if change is not None:
            self.preprocess_logits_for_metrics = lambda both, labels: (both[0], *(change(x, labels) for x in both[1:]))

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        """Evaluate or predict; training goes on as if nothing had been drawn."""
        self._whole = description == "Prediction" or self._wants_predictions
        self._generator = Generator(self.args.device).manual_seed(self.args.seed + self.args.process_index)
        with torch.random.fork_rng(devices=[]):  # a loader, too, draws a number when it begins
            output = super().evaluation_loop(dataloader, description, False, ignore_keys, metric_key_prefix)
        scores, found = output.predictions, None
        if isinstance(scores, tuple):
            scores, found = scores
        elif output.label_ids is None:
            scores, found = None, scores
        metrics = output.metrics
        if scores is not None and not self.args.batch_eval_metrics:
            own = Scores.means(torch.as_tensor(scores))
            metrics[f"{metric_key_prefix}_loss"] = own["nll"]
            metrics.update({f"{metric_key_prefix}_{name}": value for name, value in own.items()} | metrics)
        return output._replace(predictions=found, metrics=metrics)

    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Any, Any, Any]:
        """Return the mixture's negative log-likelihood, its scores and log-probabilities, and the targets."""
        targets, inputs = self._split(self._prepare_inputs(inputs))
        own = self.bayesian
        samples = own.default_samples if self.eval_samples is None else self.eval_samples
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs, samples=samples, generator=self._generator)
            shifted = shifts(self.network)
            whole = Prediction(outputs, own.likelihood, own.members)
            if targets is None:
                return None, predictions(whole), None
            logits, about = aligned(outputs, targets, shifted)
            scores = Scores.of(Prediction(logits, own.likelihood, own.members), about)
            valid = scores[..., 0].flatten()
            loss = valid[valid != -100].mean().nan_to_num()
            return loss, (scores, predictions(whole)) if self._whole else scores, targets

    # ------------------------------------------------------------------ files

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(self.args.output_dir if output_dir is None else output_dir)
        model = self.bayesian
        model.save_pretrained(folder)
        self.network.config.save_pretrained(folder / "network")
        for adapter in getattr(model._first_network, "peft_config", {}).values():
            adapter.save_pretrained(folder)
        write_card(model, self.network, folder / "README.md")
        processing = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        if processing is not None:
            processing.save_pretrained(folder)
        torch.save(self.args, folder / "training_args.bin")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        restore(resume_from_checkpoint, self.bayesian)

    def _load_best_model(self) -> None:
        restore(self.state.best_model_checkpoint, self.bayesian)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write ``README.md``: the model, how to load it, and what the run came to."""
        if not self.is_world_process_zero():
            return
        path = Path(self.args.output_dir) / "README.md"
        path.unlink(missing_ok=True)
        super().create_model_card(*args, **kwargs)
        write_card(self.bayesian, self.network, path, of_run=path.read_text())


def _with_predictions(p: EvalPrediction, predictions: Any) -> EvalPrediction:
    return EvalPrediction(predictions=predictions, label_ids=p.label_ids, losses=p.losses, inputs=p.inputs)
