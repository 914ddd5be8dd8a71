"""A distributed file system of this machine: its servers and the clients of its nodes are processes that a test starts
and ends. One module for each kind; kinds.py lists them."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

DEADLINE_S = 120
ADDRESS = "10.77.0.1"  # in a network of their own, beside 127.0.0.1


def wait_until(check, what):
    end = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < end, f"{what}: not within {DEADLINE_S} s"
        time.sleep(0.05)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def mount_of(path):
    """The last line of /proc/self/mountinfo about it: its type and its device number; None."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        before, after = line.split(" - ")
        if before.split()[4] == str(path):
            return after.split()[0], before.split()[2]
    return None


class FileSystem:
    """Subclasses define start, restart and client_command. What they start by `spawn` is in the foreground."""

    changes_seen_s = 1  # so long a node may see what was before another node's write
    times_s = 0  # the unit of a file's times: two writes of one size within it look the same (SECURITY.md)
    opens_by_name = False  # a file that was renamed to a name is read under what the client knew of the one before
    has_locks = False  # a lock that one node has of a file keeps others out
    is_shown_on_open = False  # a file that is opened shows what another node wrote before
    is_bucket = False  # directories are no more than names of files; another node shows other times of them
    # How a save may be written over another while a node reads. Where a client's pages stay that were read during a
    # write, which whole seconds of a file's time cannot show either: not in place.
    second_saves = ("renamed", "truncated")

    def __init__(self, top):
        self.top = Path(top)
        self.nodes = {}
        self.clients = {}
        self.servers = []
        self.logs = open(self.top / "log", "ab")
        self.prefix = []
        self.network = None

    def path(self, *parts):
        """A directory below the top, made if it is not there."""
        path = self.top.joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def spawn(self, *command, **how):
        return subprocess.Popen([*self.prefix, *map(str, command)], stdin=subprocess.DEVNULL, stdout=self.logs,
                                stderr=self.logs, **how)

    def serve(self, *command, **how):
        self.servers.append(self.spawn(*command, **how))
        return self.servers[-1]

    def run(self, *command, **how):
        done = subprocess.run([*self.prefix, *map(str, command)], capture_output=True, text=True, timeout=DEADLINE_S,
                              **how)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def wait_until(self, check, what):
        def checked():
            for server in self.servers:
                assert server.poll() is None, f"{server.args} ended: {self.log()}"
            return check()

        wait_until(checked, what)

    def log(self):
        return (self.top / "log").read_text(errors="replace")[-4000:]

    # -- the network that servers and clients share --

    def begin_network(self):
        """Of their own, before anything is started: with the usual ports, and as slow as one likes. As root."""
        self.network = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        mine = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{self.network.pid}/ns/net") != mine, "a network namespace")
        self.prefix = ["nsenter", f"--net=/proc/{self.network.pid}/ns/net"]
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{ADDRESS}/24", "dev", "lo")

    def limit_network(self, gbit):
        """All that is sent there, together, to so many Gbit/s."""
        self.run("tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate", f"{gbit}gbit", "burst", "256k",
                 "latency", "50ms")

    def listens(self, port):
        """By the kernel's table: it may be another network's port."""
        of = Path("/proc", str(self.network.pid) if self.network else "self", "net")
        lines = [line.split() for table in ("tcp", "tcp6") for line in (of / table).read_text().splitlines()[1:]]
        return any(line[1].endswith(f":{port:04X}") and line[3] == "0A" for line in lines)

    def processes(self, *names):
        """Those of the network that have one of these names; all without one."""
        found = []
        mine = os.readlink(f"/proc/{self.network.pid}/ns/net")
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.readlink(entry / "ns/net") == mine:
                    if not names or (entry / "comm").read_text().strip() in names:
                        found.append(int(entry.name))
        return found

    # -- nodes: each has a client of its own --

    def node(self, name):
        """The directory where the node `name` has the file system mounted."""
        if name not in self.nodes:
            self.nodes[name] = self.path("nodes", name)
            self.mount(name)
        return self.nodes[name]

    def mount(self, name):
        path = self.nodes[name]
        process = self.spawn(*self.client_command(name, path))
        self.clients[name] = process

        def is_up():
            assert process.poll() is None, f"the client {process.args} ended: {self.log()}"
            return mount_of(path)

        wait_until(is_up, f"a mount at {path}")
        os.listdir(path)

    def signal_client(self, name, signum):
        """All of its processes: a parent of that of JuiceFS only watches the one that answers."""
        pids = [self.clients[name].pid]
        for pid in pids:
            os.kill(pid, signum)
            for thread in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (thread / "children").read_text().split())

    def unmount(self, name):
        subprocess.run(["umount", "-l", self.nodes[name]], check=False, capture_output=True)
        process = self.clients.pop(name)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()

    # -- servers --

    def kill(self):
        """All servers at once, as a machine that loses its power."""
        for server in self.servers:
            server.kill()
        for server in self.servers:
            server.wait()
        self.servers = []

    def end(self):
        for name in list(self.clients):
            self.unmount(name)
        self.kill()
        self.logs.close()
        if self.network:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.network.wait()


class InNamespace(FileSystem):
    """Its servers want their usual ports, or refuse 127.0.0.1."""

    def __init__(self, top):
        super().__init__(top)
        self.begin_network()


def must_be_installed(*programs):
    missing = [p for p in programs if not shutil.which(p)]
    assert not missing, f"not installed: {', '.join(map(str, missing))} (tools/packages.sh has the packages)"
