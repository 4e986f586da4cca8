"""Record the operator inputs of a training step of real architectures, for `operatorbench.py`.

    python benchmarks/record_operator_inputs.py            # all of the shipped logs, about a minute
    python benchmarks/record_operator_inputs.py gpt2 vit_base --out /tmp/logs

Architectures at their published sizes, from transformers' configurations, with random weights, on
fake tensors: nothing is downloaded, and neither memory nor a GPU is needed.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from opbench.loader import INPUTS_FOLDER
from opbench.recorder import OperatorInputsMode
from torch._subclasses.fake_tensor import FakeTensorMode

Model = tuple[torch.nn.Module, dict[str, torch.Tensor]]


def _tokens(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def _text_model(model: torch.nn.Module, tokens: torch.Tensor) -> Model:
    return model, {"input_ids": tokens, "labels": tokens}


def _image_model(model: torch.nn.Module, batch: int) -> Model:
    return model, {
        "pixel_values": torch.randn(batch, 3, 224, 224),
        "labels": torch.randint(0, 1000, (batch,)),
    }


# Attention is written out (attn_implementation="eager"), as in PyTorch's logs: fused attention is
# another operator on each device, and compiled code calls it as it is.


def gpt2() -> Model:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(attn_implementation="eager", loss_type="ForCausalLM")
    return _text_model(GPT2LMHeadModel(config), _tokens(4, 1024, config.vocab_size))


def bert_base() -> Model:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(attn_implementation="eager")
    return _text_model(BertForMaskedLM(config), _tokens(16, 512, config.vocab_size))


def t5_small() -> Model:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(pad_token_id=0, decoder_start_token_id=0, attn_implementation="eager")
    return _text_model(T5ForConditionalGeneration(config), _tokens(8, 512, config.vocab_size))


def llama_1b() -> Model:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(  # Llama 3.2 1B
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=131072,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    return _text_model(LlamaForCausalLM(config), _tokens(2, 1024, config.vocab_size))


def whisper_tiny() -> Model:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(attn_implementation="eager")
    return WhisperForConditionalGeneration(config), {
        "input_features": torch.randn(8, config.num_mel_bins, 3000),
        "labels": _tokens(8, 448, config.vocab_size),
    }


def mobilenet_v2() -> Model:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    return _image_model(MobileNetV2ForImageClassification(_for_images(MobileNetV2Config)), 64)


def vit_base() -> Model:
    from transformers import ViTConfig, ViTForImageClassification

    config = _for_images(ViTConfig, attn_implementation="eager")
    return _image_model(ViTForImageClassification(config), 64)


def resnet50() -> Model:
    from transformers import ResNetConfig, ResNetForImageClassification

    return _image_model(ResNetForImageClassification(_for_images(ResNetConfig)), 64)


def convnext_tiny() -> Model:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return _image_model(ConvNextForImageClassification(_for_images(ConvNextConfig)), 64)


def _for_images(config: Callable[..., Any], **more: Any) -> Any:
    return config(num_labels=1000, problem_type="single_label_classification", **more)


@dataclass(frozen=True)
class Recording:
    """A shipped log: whose it is, and where it goes."""

    suite: str
    file: str
    make: Callable[[], Model]


RECORDINGS = {
    "gpt2": Recording("huggingface", "GPT2LMHeadModel_training.txt", gpt2),
    "bert_base": Recording("huggingface", "BertForMaskedLM_training.txt", bert_base),
    "t5_small": Recording("huggingface", "T5Small_training.txt", t5_small),
    "llama_1b": Recording("torchbench", "llama_1b_training.txt", llama_1b),
    "whisper_tiny": Recording("torchbench", "whisper_tiny_training.txt", whisper_tiny),
    "mobilenet_v2": Recording("torchbench", "mobilenet_v2_training.txt", mobilenet_v2),
    "vit_base": Recording("timm", "vit_base_patch16_224_training.txt", vit_base),
    "resnet50": Recording("timm", "resnet50_training.txt", resnet50),
    "convnext_tiny": Recording("timm", "convnext_tiny_training.txt", convnext_tiny),
}


def record_training_step(make: Callable[[], Model]) -> OperatorInputsMode:
    """Forward, backward and AdamW in half precision, on fake tensors of the meta device.

    There, operators give what they give on a GPU, as a layer norm's float32 statistics.
    """
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float16)
        with torch.device("meta"):
            model, inputs = make()
            with FakeTensorMode(allow_non_fake_inputs=True):
                model.train()
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
                with OperatorInputsMode() as recorded:
                    model(**inputs).loss.backward()
                    optimizer.step()
    finally:
        torch.set_default_dtype(before)
    return recorded


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=INPUTS_FOLDER,
    help="Folder for the logs, each in its suite's folder.  [default: the shipped inputs]",
)
def main(models: tuple[str, ...], out: Path) -> None:
    """Record a training step of each MODEL (all of them, if none is named)."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    unknown = set(models) - set(RECORDINGS)
    if unknown:
        raise click.BadParameter(
            f"{unknown.pop()}; choose from {', '.join(RECORDINGS)}", param_hint="MODEL"
        )
    for name in models or RECORDINGS:
        recording = RECORDINGS[name]
        path = out / recording.suite / recording.file
        recorded = record_training_step(recording.make)
        recorded.log_to_file(path)
        calls = sum(count for log in recorded.func_db.values() for _, count in log.values())
        click.echo(f"{path}: {calls} calls recorded, {path.stat().st_size} bytes")
        for what, count in recorded.left_out.items():
            click.echo(f"  left out {count} calls of {what}")


if __name__ == "__main__":
    main()
