"""Our figures in the loggers of other people's trainers, as the loggers wrote them down."""

import csv
import importlib.util
import json
from collections.abc import Callable
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
ENV = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline"}
# What W&B writes is its own; what it is given is not.
GIVEN = """
    import json, wandb
    given, log = [], wandb.Run.log
    def listening(self, data, *args, **kwargs):
        given.append(data)
        json.dump(given, open("wandb.json", "w"), default=str)
        return log(self, data, *args, **kwargs)
    wandb.Run.log = listening
"""
CALLS = "instrumented/graph_calls"
# At the first step, and the last of all when the training ends.
EXPECTED = [(1, 1.0), (STEPS, float(STEPS))]
Logged = list[tuple[int, float]]


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


# --- What the loggers wrote: figures with their steps ---------------------------------------------


def in_tensorboard(folder: Path, name: str) -> Logged:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (file,) = folder.rglob("events.out*")
    events = EventAccumulator(str(file))
    events.Reload()
    return [(each.step, each.value) for each in events.Scalars(name)]


def in_mlflow(folder: Path, name: str) -> Logged:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(_database(folder))
    (run,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
    return [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, name)]


def in_wandb(folder: Path, name: str) -> Logged:
    given = json.loads((folder / "wandb.json").read_text())
    step = next(key for key in given[0] if key.endswith("/global_step"))
    return [(each[step], each[name]) for each in given if name in each]


def in_csv(folder: Path, name: str) -> Logged:
    (file,) = folder.rglob("metrics.csv")
    return [
        (int(row["step"]), float(row[name])) for row in csv.DictReader(file.open()) if row[name]
    ]


def _database(folder: Path) -> str:
    return f"sqlite:///{folder}/mlflow.db"


# --- The trainers -------------------------------------------------------------------------------

in_hugging_faces = needs("transformers", "accelerate")


@in_hugging_faces
@pytest.mark.parametrize(
    ("logger", "read", "prefix"),
    [
        pytest.param("tensorboard", in_tensorboard, "train/", marks=needs("tensorboard")),
        pytest.param("mlflow", in_mlflow, "", marks=needs("mlflow", "sqlalchemy", "alembic")),
        pytest.param("wandb", in_wandb, "train/", marks=needs("wandb")),
    ],
)
def test_hugging_face(
    run_program: RunProgram,
    tmp_path: Path,
    logger: str,
    read: Callable[[Path, str], Logged],
    prefix: str,
) -> None:
    """Nothing of it is printed."""
    done = run_program(
        (GIVEN if logger == "wandb" else "")
        + MODEL
        + f"""
    from transformers import Trainer, TrainingArguments
    from instrumented_backend.integrations.transformers import InstrumentedCallback
    arguments = TrainingArguments(
        "out", num_train_epochs=1, per_device_train_batch_size=4, logging_steps=1,
        report_to=["{logger}"], save_strategy="no", use_cpu=True, disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Data())
    trainer.add_callback(InstrumentedCallback(trainer))
    trainer.train()
    assert not any("instrumented" in key for entry in trainer.state.log_history for key in entry)
""",
        env={
            **ENV,
            "TENSORBOARD_LOGGING_DIR": str(tmp_path / "board"),
            "MLFLOW_TRACKING_URI": _database(tmp_path),
        },
        timeout=600,
    )
    assert read(tmp_path, prefix + CALLS) == EXPECTED
    assert len(read(tmp_path, f"{prefix}loss")) == STEPS
    assert "instrumented/" not in done.stdout + done.stderr
    assert done.report["summary"]["graph_calls"] == STEPS


@needs("lightning")
@pytest.mark.parametrize(
    ("logger", "read"),
    [
        ('CSVLogger("logs", flush_logs_every_n_steps=1)', in_csv),
        pytest.param('TensorBoardLogger("board")', in_tensorboard, marks=needs("tensorboard")),
        pytest.param(
            'MLFlowLogger(tracking_uri=os.environ["MLFLOW_TRACKING_URI"])',
            in_mlflow,
            marks=needs("mlflow", "sqlalchemy", "alembic"),
        ),
        pytest.param("WandbLogger(offline=True)", in_wandb, marks=needs("wandb")),
    ],
    ids=["csv", "tensorboard", "mlflow", "wandb"],
)
def test_lightning(
    run_program: RunProgram, tmp_path: Path, logger: str, read: Callable[[Path, str], Logged]
) -> None:
    run_program(
        (GIVEN if "Wandb" in logger else "")
        + MODEL
        + f"""
    import os, lightning
    from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger
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
        accelerator="cpu", devices=1, max_epochs=1, logger={logger},
        callbacks=[InstrumentedCallback()], enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Training(), torch.utils.data.DataLoader(Data(), 4))
""",
        env={**ENV, "MLFLOW_TRACKING_URI": _database(tmp_path)},
        timeout=600,
    )
    assert read(tmp_path, CALLS) == EXPECTED
