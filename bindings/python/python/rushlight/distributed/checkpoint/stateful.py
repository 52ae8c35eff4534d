"""Objects with a state of their own."""

from typing import Any, Protocol, TypeVar, runtime_checkable

__all__ = ["Stateful", "StatefulT"]


@runtime_checkable
class Stateful(Protocol):
    """An object whose ``state_dict`` is saved and whose ``load_state_dict`` gets it back."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the state."""
        ...


StatefulT = TypeVar("StatefulT", bound=Stateful)
