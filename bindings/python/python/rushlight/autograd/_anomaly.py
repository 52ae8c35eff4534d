"""Where the forward of an op was called, for anomaly detection."""

import sys
import traceback
import warnings


def stack():
    """The stack of the caller, as ``traceback`` prints it."""
    return "".join(traceback.format_stack(sys._getframe(1)))


def report(function, forward):
    """Warns that a backward function made NaN."""
    if forward is None:
        text = "No forward pass information available. Enable detect anomaly during forward pass for more information."
    else:
        text = f"Traceback of forward call that caused the error:\n{forward}"
    warnings.warn(f"Error detected in {function}. {text}", stacklevel=2)
