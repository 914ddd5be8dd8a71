"""MooseFS: a master and two chunk servers."""

import shutil

from file_system import ADDRESS, InNamespace

MASTER, CHUNKS, CLIENTS = 9419, 9420, 9421
EMPTY = "/var/lib/mfs/metadata.mfs.empty"


class Moose(InNamespace):
    def start(self):
        master = self.path("master")
        shutil.copy(EMPTY, master / "metadata.mfs")
        (self.top / "exports").write_text("* / rw,alldirs,maproot=0\n* . rw\n")
        common = "WORKING_USER = root\nWORKING_GROUP = root\nLOCK_MEMORY = 0\nNICE_LEVEL = 0\n"
        (self.top / "mfsmaster.cfg").write_text(f"""{common}DATA_PATH = {master}
EXPORTS_FILENAME = {self.top}/exports
TOPOLOGY_FILENAME = {self.top}/topology
MATOML_LISTEN_HOST = {ADDRESS}
MATOCS_LISTEN_HOST = {ADDRESS}
MATOCL_LISTEN_HOST = {ADDRESS}
""")
        (self.top / "topology").write_text("")
        for i in range(2):
            (self.top / f"disks-{i}").write_text(f"{self.path('chunks', str(i))}\n")
            (self.top / f"mfschunkserver-{i}.cfg").write_text(f"""{common}DATA_PATH = {self.path("server", str(i))}
HDD_CONF_FILENAME = {self.top}/disks-{i}
HDD_LEAVE_SPACE_DEFAULT = 64MiB
HDD_TEST_FREQ = 0
BIND_HOST = {ADDRESS}
MASTER_HOST = {ADDRESS}
CSSERV_LISTEN_HOST = {ADDRESS}
CSSERV_LISTEN_PORT = {9422 + i}
MASTER_RECONNECTION_DELAY = 1
""")
        self.restart()

    def restart(self):
        self.serve("mfsmaster", "-f", "-a", "-c", self.top / "mfsmaster.cfg", "start")
        self.wait_until(lambda: self.listens(CLIENTS), "the master")
        for i in range(2):
            self.serve("mfschunkserver", "-f", "-c", self.top / f"mfschunkserver-{i}.cfg", "start")
        self.wait_until(lambda: self.listens(9422) and self.listens(9423), "the chunk servers")

    def client_command(self, name, path):
        return ["mfsmount", "-f", path, "-H", ADDRESS, "-o", "nonempty"]
