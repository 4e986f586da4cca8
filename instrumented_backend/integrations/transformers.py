"""For the Trainer of Hugging Face: our figures beside the loss, in each logger that it reports to.

trainer = Trainer(model, arguments, ...)
trainer.add_callback(InstrumentedCallback(trainer))
"""

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from instrumented_backend.integrations.current import Figures, guard

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments

_LOGGERS: tuple[type[TrainerCallback], ...] = tuple(set(INTEGRATION_TO_CALLBACK.values()))


class InstrumentedCallback(TrainerCallback):
    """When the Trainer logs, and there are new figures, its loggers get them, too.

    Loggers are those of ``report_to``, such as TensorBoard, W&B and MLflow. What prints on the
    terminal, and the Trainer's own history, stay as they are.
    """

    def __init__(self, trainer: "Trainer") -> None:
        self._trainer = trainer
        self._figures = Figures("instrumented/")

    def on_log(
        self,
        args: "TrainingArguments",
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if not state.is_world_process_zero:
            return
        # What it logs last; when the training has ended, loggers have, too.
        figures = self._figures.new(last="train_runtime" in (logs or ()))
        if figures:
            for callback in self._trainer.callback_handler.callbacks:
                if isinstance(callback, _LOGGERS):
                    with guard():
                        callback.on_log(args, state, control, logs=dict(figures), **kwargs)
