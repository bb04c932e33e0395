"""PEFT's adapters as the layers that become random."""

from typing import Any

from torch import nn

from slimbayes._checks import check_choice

__all__ = ["adapters"]

#: Which of the two matrices of LoRA, W + s B A, become random.
MATRICES = {"A": ("lora_A",), "B": ("lora_B",), "both": ("lora_A", "lora_B")}


def adapters(net: nn.Module, matrices: str = "A") -> dict[str, Any]:
    """Return options of a method with which the LoRA matrices of a PEFT model become random.

    What PEFT trains is trained: the matrices, and what its ``modules_to_save`` names, such as a new head. All else is
    frozen, and left out of the file that ``model.save_pretrained`` writes. ``sb.mean_field`` with random A is the
    posterior of BLoB (Wang et al. 2024), whose prior is ``prior="normal", prior_std=0.2``.

    Args:
        net: What ``peft.get_peft_model`` returned.
        matrices: ``"A"``, ``"B"`` or ``"both"``.

    Example:
        >>> import peft, transformers, slimbayes as sb
        >>> config = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=9)
        >>> net = transformers.BertForSequenceClassification(config)
        >>> net = peft.get_peft_model(net, peft.LoraConfig(r=2, target_modules=["query"], task_type="SEQ_CLS"))
        >>> model = sb.mean_field(net, **adapters(net))
        >>> [name.split(".")[-2] for name in model.summary().converted]
        ['lora_A']
    """
    check_choice("matrices", matrices, MATRICES)
    found = [
        name
        for name, module in net.named_modules()
        if set(MATRICES[matrices]) & set(name.split("."))
        and any(p.requires_grad for p in module.parameters(recurse=False))
    ]
    if not found:
        raise ValueError(
            f"Expected argument `net` to be a PEFT model whose LoRA matrices are modules and are trained, but found "
            f"none in {type(net).__name__}. Make one with peft.get_peft_model(net, peft.LoraConfig(...))."
        )
    train = [
        name for name, module in net.named_modules() if any(p.requires_grad for p in module.parameters(recurse=False))
    ]
    chosen, trained = frozenset(found), frozenset(train)
    return {
        "include": lambda name, module: name in chosen,
        "freeze_base": True,
        "train": lambda name, module: name in trained,
    }
