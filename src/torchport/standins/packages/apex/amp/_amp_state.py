"""`amp._amp_state`, private in apex and yet what scripts print the loss scale from."""

from __future__ import annotations

from typing import Any

from torchport.amp.frontend import master_params, session
from torchport.amp.options import Options
from torchport.amp.scaler import LossScaler

__all__ = ["_amp_state", "master_params"]


class _Scaler:
    """A loss scale under apex's private names, to read and to write."""

    def __init__(self, scaler: LossScaler) -> None:
        self._scaler = scaler
        self.dynamic = scaler.dynamic

    def loss_scale(self) -> float:
        return self._scaler.scale

    @property
    def _loss_scale(self) -> float:
        return self._scaler.scale

    @_loss_scale.setter
    def _loss_scale(self, value: float) -> None:
        self._scaler.scale = float(value)

    @property
    def _unskipped(self) -> int:
        return self._scaler.unskipped

    @_unskipped.setter
    def _unskipped(self, value: int) -> None:
        self._scaler.unskipped = int(value)


class _Properties:
    """The options of the last `initialize`; all None where amp is off."""

    def __init__(self, options: Options | None) -> None:
        self._options = options
        self.enabled = options is not None

    def __getattr__(self, name: str) -> Any:
        if name in Options.__dataclass_fields__:
            return getattr(self._options, name, None)
        raise AttributeError(f"amp has no property {name!r}")


class _State:
    @property
    def loss_scalers(self) -> list[_Scaler]:
        return [_Scaler(scaler) for scaler in session.loss_scalers]

    @property
    def opt_properties(self) -> _Properties:
        return _Properties(session.options)

    @property
    def verbosity(self) -> int:
        return session.verbosity


_amp_state = _State()
