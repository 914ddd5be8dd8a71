"""Which process may use what the library opened: the one that opened it. A forked child has a copy of the library's
memory, but none of the library's threads, and locks in whatever state they were."""

from __future__ import annotations

import os


class Process:
    """The process in which it was made."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def is_this(self) -> bool:
        return self.pid == os.getpid()

    def must_be_this(self, what: str) -> None:
        if not self.is_this():
            raise ValueError(f"the {what} belongs to process {self.pid}, which opened it; this forked process "
                             f"({os.getpid()}) must open its own")
