"""GlusterFS: three bricks that hold the same."""

import os
import signal

from file_system import ADDRESS, InNamespace


class Gluster(InNamespace):
    has_locks = True
    second_saves = ("renamed", "truncated", "in place")

    def start(self):
        self.settings = self.top / "glusterd.vol"
        self.settings.write_text(f"""volume management
    type mgmt/glusterd
    option working-directory {self.path("glusterd")}
    option run-directory {self.path("run")}
    option transport-type socket
    option transport.socket.listen-port 24007
    option transport.address-family inet
    option max-port 60999
    option glusterd-sockfile {self.top}/sock
end-volume
""")
        self.restart()
        bricks = [f"{ADDRESS}:{self.path('bricks', str(i))}" for i in range(3)]
        self.gluster("volume", "create", "v", "replica", "3", *bricks, "force")
        self.gluster("volume", "start", "v")

    def gluster(self, *command):
        return self.run("gluster", f"--glusterd-sock={self.top}/sock", "--mode=script", *command)

    def restart(self):
        self.serve("glusterd", "-N", "-f", self.settings, "-l", self.top / "glusterd.log", "-p", self.top / "pid")
        self.wait_until(lambda: self.listens(24007), "glusterd")

    def kill(self):
        for pid in self.processes("glusterd", "glusterfsd"):
            os.kill(pid, signal.SIGKILL)
        super().kill()

    def client_command(self, name, path):
        return ["glusterfs", "-N", "-s", ADDRESS, "--volfile-id=v", "-l", self.top / f"client-{name}.log", path]
