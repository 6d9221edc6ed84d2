"""Failures of an OpenCL device: how they are reported, and how tests cause them.

Owns the texts for errors of drivers, the rule which of them end a device, and `faults`: failures
planned by tests, which occur where a driver could fail. Does not import pyopencl.
"""

from __future__ import annotations

from ..base import DeviceError, DeviceLost

POINTS = ("open", "build", "load", "launch", "finish", "allocate", "upload", "gather", "copy")
SELF_TEST = "self-test"
"""The point where a planned fault makes values wrong instead of raising an error."""

_NAMES = {
    -2: "DEVICE_NOT_AVAILABLE",
    -4: "MEM_OBJECT_ALLOCATION_FAILURE",
    -5: "OUT_OF_RESOURCES",
    -6: "OUT_OF_HOST_MEMORY",
    -11: "BUILD_PROGRAM_FAILURE",
    -14: "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    -33: "INVALID_DEVICE",
    -34: "INVALID_CONTEXT",
    -36: "INVALID_COMMAND_QUEUE",
    -42: "INVALID_BINARY",
    -61: "INVALID_BUFFER_SIZE",
}
_CODES = {name: code for code, name in _NAMES.items()}
_LOST = {-2, -33, -34, -36, -9999}  # -9999: NVIDIA's code for an access outside all buffers
_LOST_AFTERWARDS = {-5, -14}  # an accepted kernel has failed
_NO_MEMORY = {-4, -5, -6, -61}


class Fault(Exception):
    """A planned failure of the driver; `code` as `pyopencl.Error.code`."""

    def __init__(self, point: str, code: int) -> None:
        super().__init__(f"{_NAMES[code]} (planned at {point})")
        self.code = code


class Faults:
    """Planned failures. `plan("launch", "OUT_OF_RESOURCES")` makes the next launch fail so."""

    def __init__(self) -> None:
        self._planned: dict[str, list[int]] = {}  # point -> code of each coming visit; 0: none

    def plan(
        self, point: str, status: str = "OUT_OF_RESOURCES", after: int = 0, times: int = 1
    ) -> None:
        """Make `times` visits of a point fail with an OpenCL status, after `after` good ones."""
        if point not in (*POINTS, SELF_TEST):
            raise ValueError(f"[faults] expected one of {POINTS} or {SELF_TEST!r}, got {point!r}")
        self._planned[point] = [0] * after + [_CODES[status]] * times

    def clear(self) -> None:
        """Forget every plan."""
        self._planned.clear()

    def strike(self, point: str) -> None:
        """Raise `Fault` if a plan says that this visit of the point fails."""
        if self._planned and (code := self._next(point)):
            raise Fault(point, code)

    def spoils(self, point: str) -> bool:
        """Whether a plan says that this visit of the point gives wrong values."""
        return bool(self._planned) and self._next(point) != 0

    def _next(self, point: str) -> int:
        coming = self._planned.get(point)
        return coming.pop(0) if coming else 0


faults = Faults()


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation may work once memory has been freed."""
    return getattr(error, "code", 0) in _NO_MEMORY


def device_error(error: BaseException, doing: str, afterwards: bool = False) -> DeviceError:
    """A driver's error as a `DeviceError`. `afterwards`: work accepted earlier raised it."""
    code = getattr(error, "code", 0)
    reason = f"[{doing}] OpenCL: {_NAMES.get(code) or str(error).splitlines()[0]}"
    if code in _LOST or (afterwards and code in _LOST_AFTERWARDS):
        return DeviceLost(reason)
    return DeviceError(reason)
