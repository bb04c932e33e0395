"""Small Hugging Face networks with random weights, and inputs for them; nothing is downloaded."""

import torch
import transformers
from torch import nn

BATCH, LENGTH = 4, 6
SMALL = {"vocab_size": 50, "pad_token_id": 0}


def bert() -> nn.Module:
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=16,
        num_labels=3, **SMALL,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def distilbert() -> nn.Module:
    config = transformers.DistilBertConfig(
        dim=16, hidden_dim=24, n_layers=2, n_heads=2, max_position_embeddings=16, num_labels=3, **SMALL
    )
    return transformers.DistilBertForSequenceClassification(config)


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=2, use_cache=False, **SMALL
    )
    return transformers.GPT2LMHeadModel(config)


def without_dropout(net: nn.Module) -> nn.Module:
    """Return a network whose own dropout, of layers and of attention, is switched off."""
    for module in net.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and (name == "p" or "dropout" in name):
                setattr(module, name, 0.0)
    for name in vars(net.config):
        if isinstance(getattr(net.config, name), float) and ("dropout" in name or name.endswith("pdrop")):
            setattr(net.config, name, 0.0)
    return net


def inputs() -> dict[str, torch.Tensor]:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[1, 4:] = 0
    return {"input_ids": torch.randint(3, 50, (BATCH, LENGTH)), "attention_mask": mask}


def t5() -> nn.Module:
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, decoder_start_token_id=0, use_cache=False, **SMALL
    )
    return transformers.T5ForConditionalGeneration(config)


def whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=24, decoder_ffn_dim=24, num_mel_bins=6, max_source_positions=20, max_target_positions=12,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, use_cache=False, **SMALL,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


def vit() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, image_size=16, patch_size=8,
        num_labels=3,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def llama() -> nn.Module:
    config = transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, intermediate_size=24,
        max_position_embeddings=16, use_cache=False, **SMALL,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def decoded() -> dict[str, torch.Tensor]:
    return {"decoder_input_ids": torch.randint(3, 50, (BATCH, 4))}
