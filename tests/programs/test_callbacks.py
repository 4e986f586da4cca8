"""Our figures in the loggers of other people's trainers, as the loggers wrote them down."""

import csv
import importlib.util
from pathlib import Path

import pytest
from programs import RunProgram

pytestmark = pytest.mark.full

MODEL = """
    import torch
    torch.set_num_threads(1)
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
        def forward(self, x, labels=None):
            return {"loss": self.last(self.first(x).relu()).square().mean()}
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 20
        def __getitem__(self, index):
            return {"x": torch.full((8,), float(index)), "labels": torch.zeros(1)}
    model = Model()
    model.forward = torch.compile(model.forward, backend="instrumented")
"""
STEPS = 5  # of 4 each
ENV = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@needs("transformers", "accelerate", "tensorboard")
def test_hugging_face_and_tensorboard(run_program: RunProgram, tmp_path: Path) -> None:
    """At the first step, and the last of all when the training ends; nothing of it is printed."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = run_program(
        MODEL
        + """
    from transformers import Trainer, TrainingArguments
    from instrumented_backend.integrations.transformers import InstrumentedCallback
    arguments = TrainingArguments(
        "out", num_train_epochs=1, per_device_train_batch_size=4, logging_steps=1,
        report_to=["tensorboard"], save_strategy="no", use_cpu=True, disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Data())
    trainer.add_callback(InstrumentedCallback(trainer))
    trainer.train()
    assert not any("instrumented" in key for entry in trainer.state.log_history for key in entry)
""",
        env={**ENV, "TENSORBOARD_LOGGING_DIR": str(tmp_path / "board")},
        timeout=600,
    )
    (file,) = tmp_path.rglob("events.out*")
    events = EventAccumulator(str(file))
    events.Reload()
    calls = [(each.step, each.value) for each in events.Scalars("train/instrumented/graph_calls")]
    assert calls == [(1, 1.0), (STEPS, STEPS)]
    assert len(events.Scalars("train/loss")) == STEPS
    assert "instrumented/" not in done.stdout + done.stderr
    assert done.report["summary"]["graph_calls"] == STEPS


@needs("lightning")
def test_lightning_and_csv(run_program: RunProgram, tmp_path: Path) -> None:
    run_program(
        MODEL
        + """
    import lightning
    from lightning.pytorch.loggers import CSVLogger
    from instrumented_backend.integrations.lightning import InstrumentedCallback
    class Training(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model
        def training_step(self, batch, index):
            return self.model(batch["x"])["loss"]
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=1,
        logger=CSVLogger("logs", flush_logs_every_n_steps=1),
        callbacks=[InstrumentedCallback()], enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Training(), torch.utils.data.DataLoader(Data(), 4))
""",
        env=ENV,
        timeout=600,
    )
    (file,) = tmp_path.rglob("metrics.csv")
    rows = [row for row in csv.DictReader(file.open()) if row["instrumented/graph_calls"]]
    calls = [(int(row["step"]), float(row["instrumented/graph_calls"])) for row in rows]
    assert calls == [(1, 1.0), (STEPS, STEPS)]
