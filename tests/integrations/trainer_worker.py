"""What test_trainer.py runs in one process, and in each of two: the same training, with the same batches in all."""

import os
import sys
from pathlib import Path

import torch
import transformers
from test_trainer import examples, texts

import slimbayes as sb
from hugging_face import bert, gpt2, without_dropout
from slimbayes.integrations.transformers import Trainer


def main(folder: Path) -> None:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    results = {}
    for name, build, data, options in (
        ("classes", bert, examples(8), {}),
        ("texts", gpt2, texts(8), {}),
        ("trained prior", bert, examples(8), {"prior_scale": "trainable"}),
    ):
        torch.manual_seed(0)
        net = without_dropout(build().double())
        model = sb.rank1(net, members=2, init="ones", **options)
        args = transformers.TrainingArguments(
            str(folder / "run"), max_steps=2, per_device_train_batch_size=4 // processes, optim="sgd", max_grad_norm=0,
            gradient_accumulation_steps=2, learning_rate=1e-2, report_to=[], use_cpu=True, disable_tqdm=True,
            save_strategy="no", logging_steps=1, per_device_eval_batch_size=3,
        )  # fmt: skip
        trainer = Trainer(model, args, train_dataset=data, eval_dataset=data[:7], samples=0, eval_samples=0)
        trainer.train()
        results[name] = {key: value.clone() for key, value in model.state_dict().items()}
        losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
        metrics = trainer.evaluate()
        results[f"{name}, scores"] = torch.tensor([*losses, metrics["eval_nll"], metrics["eval_ece"]])
        results[f"{name}, rows"] = torch.tensor(trainer.predict(data[:7]).predictions)
    if int(os.environ.get("RANK", "0")) == 0:
        torch.save(results, folder / f"{processes}.pt")
    trainer.end()
    if processes > 1:  # gloo's threads wait for Python's lock while the last reference to the group is dropped under it
        os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
