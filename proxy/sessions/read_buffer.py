"""Where all connections of a process are read into: one piece of memory, walked over in place and used again.

The loop's own way takes new memory for each read and copies into it what it has read into memory of its own. Here the
kernel's copy is the only one, as long as what was read goes on at once.

How much is read at a time grows with what there is, and begins anew where something is held (`Leg`): large reads cost
less, above all in a virtual machine, where to wake those at both ends is dear; small ones bring less that has no room.

Source: the C interface of Python: what PyBytes_FromStringAndSize gives without a string is filled by whoever made it.
"""

import ctypes
from typing import Final

LEAST_READ: Final = 256 * 1024
STEPS: Final = 2
"""How often it doubles."""
MOST_READ: Final = LEAST_READ << STEPS
_WRITABLE: Final = 0x200  # PyBUF_WRITE


class ReadBuffer:
    """The memory, in the two forms that are needed.

    It is `bytes`, because only of these do compiled modules read without a call; so nobody may keep `data` itself, but
    slices, which are copies: it is longer than the longest that is read.

    Attributes:
        data: What was read, at its beginning.
        views: The same memory, to be written to: LEAST_READ bytes of it, then twice as many each, up to MOST_READ.
    """

    __slots__ = ("data", "views")

    def __init__(self) -> None:
        self.data: bytes = _new(None, MOST_READ + 1)
        whole: memoryview = _view_of(_address_of(self.data), MOST_READ, _WRITABLE)
        self.views = tuple(whole[: LEAST_READ << step] for step in range(STEPS + 1))


_new = ctypes.pythonapi.PyBytes_FromStringAndSize
_new.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
_new.restype = ctypes.py_object
_address_of = ctypes.pythonapi.PyBytes_AsString
_address_of.argtypes = (ctypes.py_object,)
_address_of.restype = ctypes.c_void_p
_view_of = ctypes.pythonapi.PyMemoryView_FromMemory
_view_of.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_view_of.restype = ctypes.py_object
