"""Can two folders change places in one step, so that whoever looks finds one or the other?

Linux can (renameat2(2), RENAME_EXCHANGE), on most of its file systems; Python has no word for it.
"""

import ctypes
import errno
import os

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2
_UNKNOWN = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})


def exchanged(one: str, other: str) -> bool:
    """Let what is at *one* be at *other*, and the other way round; False if that is not known here.

    Raises:
        OSError: one of them is not there, or not ours to move.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), one)
