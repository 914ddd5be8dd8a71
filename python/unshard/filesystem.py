"""fsspec: "unshard://VIEW/absolute/path/of/a/checkpoint/file" without a mount.

>>> import fsspec, os
>>> with fsspec.open(f"unshard://weights{os.path.abspath('tests/golden/run/checkpoint-2')}/config.json") as f:
...     f.read(1)
b'{'
"""

from __future__ import annotations

import errno
import functools
import os

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from . import session as sessions
from .session import Kind, Stat


class UnshardFile(AbstractBufferedFile):
    """Read through fsspec's caches."""

    def __init__(self, fs, path, mode="rb", **kwargs):
        if mode != "rb":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        self.source = fs.session.file(path)
        super().__init__(fs, path, mode, size=self.source.stat.size, **kwargs)

    def _fetch_range(self, start, end):
        return bytes(self.source.pread(end - start, start))

    def close(self):
        super().close()
        self.source.close()


class UnshardFileSystem(AbstractFileSystem):
    """source: the directory whose tree is shown, "/" unless it is given; further arguments are unshard.open()'s.
    A forked process (a DataLoader's worker) may go on using it: the session is opened anew there."""

    protocol = "unshard"
    root_marker = ""

    def __init__(self, source="/", settle_seconds=0, **kwargs):
        own = {k: kwargs.pop(k) for k in list(kwargs) if k in ("view", "model", "follow", "facts", "store")}
        super().__init__(**kwargs)
        self._open_session = functools.partial(sessions.open, source, settle_seconds=settle_seconds, **own)
        self._session = self._open_session()

    @property
    def session(self) -> sessions.Session:
        if not self._session.process.is_this():
            self._session = self._open_session()
        return self._session

    def _info(self, path: str, stat: Stat) -> dict:
        return {"name": path, "size": stat.size, "type": {Kind.DIRECTORY: "directory", Kind.FILE: "file"}.get(
            stat.kind, "other"), "mtime": stat.mtime_ns / 1e9, "ino": stat.ino, "mode": stat.mode}

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        return self._info(path, self.session.stat(path))

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path)
        if self.session.stat(path).kind != Kind.DIRECTORY:
            found = [self.info(path)]
        else:
            found = [self._info(f"{path}/{e.name}".lstrip("/"), e.stat) for e in self.session.list(path)]
        return found if detail else [f["name"] for f in found]

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs):
        return UnshardFile(self, path, mode, block_size=block_size or self.blocksize, cache_options=cache_options)

    def cat_file(self, path, start=None, end=None, **kwargs):
        path = self._strip_protocol(path)
        size = self.session.stat(path).size
        begin, stop, _ = slice(start, end).indices(size)
        return self.session.read(path, begin, max(0, stop - begin))

    def created(self, path):
        raise NotImplementedError

    def modified(self, path):
        import datetime
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], datetime.timezone.utc)
