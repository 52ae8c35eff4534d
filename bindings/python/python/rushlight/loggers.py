"""Logs of a run's values, as the Rust Trainer writes them: ``rushlight ui`` and the programs they are named after read them.

>>> from rushlight.loggers import CSVLogger, WandbLogger
>>> for logger in (CSVLogger("runs/a", hparams={"lr": 0.1}), WandbLogger("runs/a", project="digits")):
...     with logger:
...         logger.log(1, loss=0.5)
"""

import json

from . import _C

__all__ = ["CSVLogger", "JSONLinesLogger", "MLflowLogger", "TensorBoardLogger", "WandbLogger"]


class _Logger:
    _kind = ""

    def __init__(self, directory, *, hparams=None, _first="", _second=""):
        self.directory = str(directory)
        self._newest = {}
        self._log = _C.RunLogger(self._kind, self.directory, _first, _second, json.dumps(hparams or {}, default=str))

    def log(self, step, values=None, *, epoch=0, **named):
        """Logs numbers by name: a dictionary, or arguments, or both. One-element tensors are numbers too."""
        rows = {name: float(value) for name, value in {**(values or {}), **named}.items()}
        self._newest.update(rows)
        self._log.log(step, epoch, list(rows.items()))

    def flush(self):
        """Writes everything to the files."""
        self._log.flush()

    def close(self):
        """Ends the log."""
        self._log.close(list(self._newest.items()))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


class CSVLogger(_Logger):
    """``metrics.csv`` in a run's directory."""

    _kind = "csv"


class JSONLinesLogger(_Logger):
    """``metrics.jsonl`` in a run's directory: a line for each step."""

    _kind = "jsonl"


class TensorBoardLogger(_Logger):
    """TensorBoard's event files in a run's directory; ``torch.utils.tensorboard`` writes everything else that TensorBoard shows."""

    _kind = "tensorboard"


class MLflowLogger(_Logger):
    """MLflow's file store, without MLflow: ``mlflow ui --backend-store-uri ROOT`` shows it."""

    _kind = "mlflow"

    def __init__(self, directory, root="mlruns", *, experiment="Default", hparams=None):
        super().__init__(directory, hparams=hparams, _first=str(root), _second=experiment)


class WandbLogger(_Logger):
    """A folder ``wandb/offline-run-...`` in a run's directory, without wandb: ``wandb sync`` uploads it."""

    _kind = "wandb"

    def __init__(self, directory, *, project="uncategorized", entity="", hparams=None):
        super().__init__(directory, hparams=hparams, _first=project, _second=entity)
