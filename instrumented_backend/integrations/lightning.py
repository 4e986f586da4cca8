"""For Lightning's Trainer: our figures in each of its loggers.

trainer = Trainer(callbacks=[InstrumentedCallback()], logger=...)
"""

import sys
from typing import Any

from instrumented_backend.integrations.current import Figures, guard

# One project under two names: the one that the program has.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class InstrumentedCallback(Callback):  # type: ignore[misc]
    """Now and then, after a batch, and when the training ends."""

    def __init__(self) -> None:
        self._figures = Figures("instrumented/")

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        self._log(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer, last=True)

    def _log(self, trainer: Any, last: bool = False) -> None:
        figures = self._figures.new(last) if trainer.is_global_zero and trainer.loggers else None
        if figures:
            for logger in trainer.loggers:
                with guard():
                    logger.log_metrics(figures, step=trainer.global_step)
