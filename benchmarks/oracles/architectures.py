"""Real architectures from transformers, small, with random weights; nothing is downloaded."""

from collections.abc import Callable
from typing import Any

import torch

Inputs = dict[str, torch.Tensor]


def _tokens(batch: int = 2, length: int = 16, vocabulary: int = 100) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def gpt2() -> tuple[torch.nn.Module, Inputs]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=100, n_positions=32, loss_type="ForCausalLM"
    )
    tokens = _tokens()
    return GPT2LMHeadModel(config), {"input_ids": tokens, "labels": tokens}


def bert() -> tuple[torch.nn.Module, Inputs]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=100,
        max_position_embeddings=32,
    )
    tokens = _tokens()
    return BertForMaskedLM(config), {"input_ids": tokens, "labels": tokens}


def llama() -> tuple[torch.nn.Module, Inputs]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=64,
        vocab_size=100,
        max_position_embeddings=32,
    )
    tokens = _tokens()
    return LlamaForCausalLM(config), {"input_ids": tokens, "labels": tokens}


def vit() -> tuple[torch.nn.Module, Inputs]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_labels=5,
        problem_type="single_label_classification",  # or the model sets it, and is recompiled
    )
    return ViTForImageClassification(config), {
        "pixel_values": torch.randn(2, 3, 32, 32),
        "labels": torch.tensor([1, 3]),
    }


def t5() -> tuple[torch.nn.Module, Inputs]:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        num_layers=2,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_heads=2,
        vocab_size=100,
        pad_token_id=0,
        decoder_start_token_id=0,
    )
    tokens = _tokens()
    return T5ForConditionalGeneration(config), {"input_ids": tokens, "labels": tokens}


def resnet() -> tuple[torch.nn.Module, Inputs]:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        num_labels=5,
        problem_type="single_label_classification",
    )
    return ResNetForImageClassification(config), {
        "pixel_values": torch.randn(2, 3, 32, 32),
        "labels": torch.tensor([1, 3]),
    }


ARCHITECTURES: dict[str, Callable[[], tuple[torch.nn.Module, Inputs]]] = {
    "gpt2": gpt2,
    "bert": bert,
    "llama": llama,
    "vit": vit,
}
ALL_ARCHITECTURES = {**ARCHITECTURES, "t5": t5, "resnet": resnet}


def run_steps(
    name: str, training: bool, steps: int = 2, device: str = "cpu", **compile_options: Any
) -> dict[str, torch.Tensor]:
    """Every output, loss and gradient of ``steps`` steps, from the same seed each time."""
    torch.manual_seed(0)
    model, inputs = ARCHITECTURES[name]()
    model = model.to(device).train(training)
    inputs = {key: value.to(device) for key, value in inputs.items()}
    compiled = torch.compile(model, **compile_options)
    results: dict[str, torch.Tensor] = {}
    for step in range(steps):
        torch.manual_seed(step)  # dropout
        if training:
            output = compiled(**inputs)
            output.loss.backward()
            for parameter, value in model.named_parameters():
                if value.grad is not None:
                    results[f"step {step}, gradient of {parameter}"] = value.grad.clone()
            model.zero_grad()
        else:
            with torch.inference_mode():
                output = compiled(**inputs)
        results[f"step {step}, loss"] = output.loss.detach().clone()
        results[f"step {step}, logits"] = output.logits.detach().clone()
    return results
