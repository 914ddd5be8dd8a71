"""rclone over a web server, which is rclone too: what a node writes lies in the server's directory."""

import os
import re

from file_system import FileSystem, free_port


class Rclone(FileSystem):
    CACHE_S = 1
    LOGGED = "logged"  # the node whose client logs what it does
    changes_seen_s = 3
    times_s = 1
    opens_by_name = True
    second_saves = ("renamed",)

    def start(self):
        self.port = free_port()
        self.data = self.path("data")
        self.restart()

    def restart(self):
        self.serve("rclone", "serve", "http", "--config", os.devnull, "--addr", f"127.0.0.1:{self.port}",
                   "--dir-cache-time", "0s", "--poll-interval", "0", self.data)
        self.wait_until(lambda: self.listens(self.port), "a web server")

    def node(self, name):
        """The first node is the server itself: the web is read-only."""
        return self.data if name == "a" else super().node(name)

    def client_command(self, name, path):
        logged = ["-vv", "--log-file", self.log_of(name)] if name == self.LOGGED else []
        return ["rclone", "mount", "--config", os.devnull, "--read-only", "--dir-cache-time", f"{self.CACHE_S}s",
                "--poll-interval", "0", *logged, f":http,url='http://127.0.0.1:{self.port}':", path]

    def log_of(self, name):
        return self.top / f"client-{name}.log"

    def streams(self):
        """Of shards that the node LOGGED has begun: the shard, and the first byte of each."""
        return re.findall(r"(\S+\.distcp): ChunkedReader\.openRange at (\d+)", self.log_of(self.LOGGED).read_text())
