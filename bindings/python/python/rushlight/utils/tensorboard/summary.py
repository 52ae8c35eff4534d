"""``torch.utils.tensorboard.summary``: summaries that loggers of other libraries write by themselves."""

import json

from . import _plain

__all__ = ["hparams"]


class _Hparams:
    """The experiment's hyperparameters and metrics, with the begin and the end of a session."""

    def __init__(self, values, metrics):
        self._values, self._metrics = values, metrics

    def _write(self, events):
        events.hparams(json.dumps(self._values), self._metrics)


class _Written:
    """A part that is written together with its experiment's summary."""

    def _write(self, events):
        pass


def hparams(hparam_dict=None, metric_dict=None, hparam_domain_discrete=None):
    """Three summaries: the experiment, the start of its session and the end. The first writes all three, so write it first, as is usual."""
    if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
        raise TypeError("hparam_dict and metric_dict should be dictionaries.")
    values = _plain(hparam_dict, hparam_domain_discrete)
    return _Hparams(values, [str(name) for name in metric_dict]), _Written(), _Written()
