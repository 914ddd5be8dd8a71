"""Exceptions: each carries the library's sentence and its code."""

import errno


class Error(OSError):
    """What the library failed with: `errno`, and in `strerror` one sentence for people.

    >>> raise Damaged(errno.EBADMSG, "model.pt: it is truncated")
    Traceback (most recent call last):
    unshard.errors.Damaged: [Errno 74] model.pt: it is truncated
    """


class Incomplete(Error):
    """A file, a rank or a fact is missing (ENODATA)."""


class Damaged(Error):
    """A file is not what it should be (EBADMSG)."""


class NotSupported(Error):
    """It is of a kind that unshard cannot read, or that the view cannot show (ENOTSUP)."""


class Stale(Error):
    """The source changed since it was looked at: look again (ESTALE)."""


class NotFound(Error, FileNotFoundError):
    """There is no such file, view, tensor or fact (ENOENT)."""


BY_CODE = {errno.ENODATA: Incomplete, errno.EBADMSG: Damaged, errno.ENOTSUP: NotSupported, errno.ESTALE: Stale,
           errno.ENOENT: NotFound}


def error(code, sentence):
    """The exception for a negative errno."""
    return BY_CODE.get(-code, Error)(-code, sentence)
