"""Errors of a compiler that is not there."""


class TorchDynamoException(RuntimeError):
    """The base of them."""


class Unsupported(TorchDynamoException):
    """Code that a compiler does not take."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend that failed."""


class UserError(TorchDynamoException):
    """A wrong use of the compiler."""
