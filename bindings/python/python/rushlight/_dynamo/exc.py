"""Errors of a compiler that does not exist here."""


class TorchDynamoException(RuntimeError):
    """The base class."""


class Unsupported(TorchDynamoException):
    """Code that a compiler does not support."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend that failed."""


class UserError(TorchDynamoException):
    """A wrong use of the compiler."""
