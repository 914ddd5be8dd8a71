"""pytest --processes N: N processes run the tests. They are forked from the one that has collected them, so that frameworks
are imported once.

A process asks which test is next, reports what it runs, and ends when nothing is left. Here is a queue for each process.
One whose queue is empty takes the back half of the longest. The cut is between two modules if it can be, because a
module's fixtures are set up in each process that runs its tests. The reports of a test are published together, as if it
had run in this process: what prints, counts and records them knows of no others.

A process that dies has failed the test that it ran, and another takes over its queue. Nothing is waited for but processes:
what a test leaves behind (a thread, a child) has no file open that belongs to this process."""

import contextlib
import faulthandler
import functools
import os
import pickle
import select
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback

import pytest

LONGEST_S = 3600  # a test that takes longer hangs: what it waits for has limits of its own, which are shorter
ENDING_S = 60  # what processes have to end their fixtures after Ctrl-C
POLL_S = 0.2  # no process tells that it has died
LENGTH = struct.Struct("!Q")  # of a message that follows; a test's number
NOTHING = (1 << 64) - 1


class Hooks:
    @pytest.hookspec
    def pytest_process_begins(self, config, number):
        """In each process, before its first test: `number` is of no other process."""


def pytest_addoption(parser):
    parser.addoption("--processes", type=int, default=0, metavar="N",
                     help="run tests in N processes side by side; with -s, too, nothing is shown of what they print")


def pytest_addhooks(pluginmanager):
    pluginmanager.add_hookspecs(Hooks)


def pytest_configure(config):
    config.pluginmanager.register(Ended())


class Ended:
    """The tests that have ended, in whichever process: the whole run fails if one is lost."""

    def __init__(self):
        self.ids = set()

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            self.ids.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        lost = {item.nodeid for item in getattr(session, "items", ())} - self.ids
        if exitstatus == 0 and lost and not session.config.option.collectonly:
            pytest.exit(f"{len(lost)} tests were lost, {min(lost)} is one", returncode=1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    options = session.config.option
    if not options.processes or options.collectonly or session.testsfailed:
        return None  # pytest does it
    SideBySide(session).run(options.processes)
    return True


class Process:
    """One that runs tests, as its parent knows it."""

    def __init__(self, number, queue):
        self.number, self.queue = number, queue
        self.running = self.following = None  # tests that it has been given
        self.since = time.monotonic()  # when `running` began
        self.reports = []  # of `running`
        self.received = b""
        self.why = None  # it had to be killed
        self.printed = tempfile.TemporaryFile()
        self.connection, self.its_end = socket.socketpair()

    def receive(self, flags=0):
        """-> whether something came"""
        with contextlib.suppress(OSError):
            received = self.connection.recv(1 << 16, flags)
            self.received += received
            return bool(received)
        return False

    def receive_the_rest(self):
        """Of one that has ended. A child of its test may hold the connection open."""
        while self.receive(socket.MSG_DONTWAIT):
            pass

    def messages(self):
        """Those that have come whole."""
        while len(self.received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self.received)[0]
            if len(self.received) < end:
                break
            yield pickle.loads(self.received[LENGTH.size:end])
            self.received = self.received[end:]

    def answer(self, test):
        with contextlib.suppress(OSError):  # it has died: see SideBySide.ended
            self.connection.sendall(LENGTH.pack(NOTHING if test is None else test))

    def last_words(self):
        self.printed.seek(0)
        return self.printed.read().decode(errors="replace")[-8000:]

    def close(self):
        self.connection.close()
        self.printed.close()


class SideBySide:
    """Tests are numbers: places in session.items."""

    def __init__(self, session):
        self.session = session
        self.begun = 0
        self.processes = []

    def run(self, count):
        self.session.config._tmp_path_factory.getbasetemp()  # is made here: processes have theirs in it
        try:
            self.begin(list(range(len(self.session.items))))
            for _ in range(1, count):
                self.begin([])
            while self.processes:
                self.wait()
        finally:
            self.end()
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)

    def begin(self, queue):
        assert len(os.listdir("/proc/self/task")) == 1, "a thread would not be forked, but the locks that it holds"
        process = Process(self.begun, queue)
        self.begun += 1
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # a process that is half begun would go on as its parent
        process.pid = os.fork()
        if not process.pid:
            for other in [process, *self.processes]:
                other.connection.close()
            work(self.session, process.number, process.its_end, process.printed)
        process.its_end.close()
        self.processes.append(process)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

    def wait(self):
        """For what comes next."""
        readable = select.select([p.connection for p in self.processes], [], [], POLL_S)[0]
        for process in list(self.processes):
            if process.connection in readable:
                process.receive()
                self.hear(process)
            pid, status = os.waitpid(process.pid, os.WNOHANG)
            if pid:
                process.receive_the_rest()
                self.hear(process)
                self.ended(process, os.waitstatus_to_exitcode(status))
            elif process.running is not None and time.monotonic() - process.since > LONGEST_S and not process.why:
                process.why = f"the test did not end in {LONGEST_S} s"
                os.kill(process.pid, signal.SIGKILL)

    def hear(self, process):
        for report in process.messages():
            if report is None:
                self.give(process)
                continue
            report = self.session.config.hook.pytest_report_from_serializable(config=self.session.config, data=report)
            assert report.nodeid == self.session.items[process.running].nodeid, f"{report.nodeid}: another test's turn"
            process.reports.append(report)
            if report.when == "teardown":
                self.publish(process)

    def give(self, process):
        """The next test, to a process that asks for it."""
        if self.session.shouldfail or self.session.shouldstop:
            process.queue.clear()
        elif not process.queue:
            process.queue = self.back_half(max((p.queue for p in self.processes), key=len))
        test = process.queue.pop(0) if process.queue else None
        if process.running is None:
            process.running, process.since = test, time.monotonic()
        else:
            process.following = test
        process.answer(test)

    def back_half(self, queue):
        """-> is taken away from `queue`"""
        def module(i):
            return self.session.items[queue[i]].path

        middle = len(queue) // 2
        cut = min((i for i in range(1, len(queue)) if module(i) != module(i - 1)), key=lambda i: abs(i - middle), default=middle)
        taken, queue[cut:] = queue[cut:], []
        return taken

    def publish(self, process):
        item = self.session.items[process.running]
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in process.reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        process.running, process.following = process.following, None
        process.reports, process.since = [], time.monotonic()

    def ended(self, process, status):
        self.processes.remove(process)
        how = process.why or f"its process ended {f'by {signal.Signals(-status).name}' if status < 0 else f'with {status}'}"
        how += f"\n{process.last_words()}"
        process.close()
        if process.running is None:
            if status or process.queue:
                raise RuntimeError(f"between tests: {how}")
            return
        if process.following is not None:
            process.queue.insert(0, process.following)
            process.following = None
        process.reports += failure(self.session.items[process.running], process.reports, how)
        self.publish(process)
        if process.queue and not self.session.shouldfail:
            self.begin(process.queue)

    def end(self):
        """Those that still run, because this process was interrupted or has failed."""
        for process in self.processes:
            os.kill(process.pid, signal.SIGINT)
        limit = time.monotonic() + ENDING_S
        while self.processes:
            for process in list(self.processes):
                if time.monotonic() > limit:
                    os.kill(process.pid, signal.SIGKILL)
                if os.waitpid(process.pid, os.WNOHANG)[0]:
                    self.processes.remove(process)
                    process.close()
            time.sleep(0.02)


def failure(item, reports, how):
    """The reports that are missing of a test whose process has ended."""
    def report(when, outcome, longrepr):
        return pytest.TestReport(nodeid=item.nodeid, location=item.location, keywords={}, outcome=outcome, longrepr=longrepr,
                                 when=when, duration=0)

    if not reports or reports[-1].when == "setup" and reports[-1].passed:
        return [report("call" if reports else "setup", "failed", how), report("teardown", "passed", None)]
    return [report("teardown", "failed", how)]


def work(session, number, connection, printed):
    """A forked process, from its first test to its end. It ends whatever is still there: threads, what a framework does at
    exit."""
    status = 1
    try:
        signal.signal(signal.SIGINT, interrupted)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        settle_in(session.config, number, printed)
        try:
            run_tests(session, connection)
        finally:
            session._setupstate.teardown_exact(None)
        status = 0
    except BaseException:  # no test's: KeyboardInterrupt, pytest.exit
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def interrupted(*_):
    """Once: a terminal's Ctrl-C comes from the terminal and from the parent, and fixtures end meanwhile."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def settle_in(config, number, printed):
    """What the parent has and no two processes can share: the files of captured output, standard output, a directory for
    tests."""
    from _pytest.faulthandler import fault_handler_stderr_fd_key

    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    os.dup2(printed.fileno(), 1)
    os.dup2(printed.fileno(), 2)
    if faulthandler.is_enabled():
        os.dup2(printed.fileno(), config.stash[fault_handler_stderr_fd_key], inheritable=False)
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config.pluginmanager.unregister(name="terminalreporter")
    factory = config._tmp_path_factory
    factory._basetemp = factory.mktemp(f"process-{number}", numbered=False)
    config.hook.pytest_process_begins(config=config, number=number)


class Following:
    """The item behind the one that runs. It is asked for when that is torn down: until then another process may take it.
    pytest asks what it is part of, and keeps the fixtures of that."""

    def __init__(self, ask):
        self.ask = ask

    @functools.cached_property
    def item(self):
        return self.ask()

    def listchain(self):
        return self.item.listchain() if self.item else []


class Reports:
    def __init__(self, config, send):
        self.config, self.send = config, send

    def pytest_runtest_logreport(self, report):
        self.send(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


def run_tests(session, connection):
    def send(message):
        data = pickle.dumps(message)
        connection.sendall(LENGTH.pack(len(data)) + data)

    def ask():
        send(None)
        answer = connection.recv(LENGTH.size, socket.MSG_WAITALL)
        test = LENGTH.unpack(answer)[0] if answer else NOTHING  # the parent may have died
        return None if test == NOTHING else session.items[test]

    session.config.pluginmanager.register(Reports(session.config, send))
    item = ask()
    while item:
        following = Following(ask)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following.item
