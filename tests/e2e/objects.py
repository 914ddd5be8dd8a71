"""Object stores of the tests, on 127.0.0.1 alone: moto in this process, rclone's `serve s3`, Ceph's object gateway, and a
proxy before each that counts requests and makes some of them fail."""

import contextlib
import http.client
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import boto3
import botocore.config
import botocore.exceptions
from moto.server import ThreadedMotoServer

from conftest import eventually

ID, SECRET = "AKIDOFTHETESTS", "a+secret/of=the.tests.of.objects"
REGION = "us-east-1"
BUCKET = "checkpoints"

logging.getLogger("werkzeug").setLevel(logging.ERROR)  # moto's: a line for each request


class Store:
    """One bucket, which this process fills."""

    def __init__(self, address):
        self.address = address
        self.client = boto3.client(
            "s3", endpoint_url=address, aws_access_key_id=ID, aws_secret_access_key=SECRET, region_name=REGION,
            config=botocore.config.Config(retries={"max_attempts": 10}, s3={"addressing_style": "path"},
                                          request_checksum_calculation="when_required"))

    def environment(self, address=None, **more):
        """Of a process that asks the store; nothing of this machine's own settings."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        return {**env, "AWS_ENDPOINT_URL": address or self.address, "AWS_ACCESS_KEY_ID": ID,
                "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", **more}

    def put(self, key, body):
        self.client.put_object(Bucket=BUCKET, Key=key, Body=body)

    def upload(self, folder, prefix):
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())
        return f"s3://{BUCKET}/{prefix}"

    def empty(self):
        while found := self.client.list_objects_v2(Bucket=BUCKET).get("Contents"):
            self.client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": one["Key"]} for one in found]})


class Folder(Store):
    """Whose objects are the files of a directory of this machine."""

    def __init__(self, address, top):
        super().__init__(address)
        self.top = top

    def upload(self, folder, prefix):
        shutil.copytree(folder, self.top / prefix)
        return f"s3://{BUCKET}/{prefix}"


@contextlib.contextmanager
def moto():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    store = Store("http://127.0.0.1:%d" % server.get_host_and_port()[1])
    store.client.create_bucket(Bucket=BUCKET)
    yield store
    server.stop()


@contextlib.contextmanager
def rclone(folder):
    """It checks signatures. Its objects are the files of a directory, where they are put: uploads through it take long."""
    log = folder / "rclone.log"
    (folder / "data" / BUCKET).mkdir(parents=True)
    program = Path(sys.executable).with_name("rclone")
    with open(log, "wb") as out:
        process = subprocess.Popen([program, "serve", "s3", "--addr", "127.0.0.1:0", "--auth-key", f"{ID},{SECRET}",
                                    "--config", "/dev/null", "--vfs-cache-mode", "off", "--dir-cache-time", "0s",
                                    folder / "data"], stdout=out, stderr=out)
    try:
        found = []

        def address():
            found[:] = [line.split("http://")[1].split("/")[0] for line in log.read_text().splitlines()
                        if "http://127.0.0.1:" in line]
            return found

        eventually(address)
        yield Folder(f"http://{found[0].rstrip(']')}", folder / "data" / BUCKET)
    finally:
        process.kill()
        process.wait()


def free_ports(n):
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


CEPH_CONF = """[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{monitor}
public addr = 127.0.0.1
mon data = {top}/mon
mon allow pool size one = true
mon data avail crit = 0
mon max pg per osd = 1000
osd data = {top}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
rgw frontends = beast endpoint=127.0.0.1:{gateway}
keyring = {top}/keyring
log file = {top}/$name.log
run dir = {top}
admin socket = {top}/$name.asok
pid file =
"""
CEPH_KEYS = {"mon.": ["mon", "allow *"], "client.admin": ["mon", "allow *", "--cap", "osd", "allow *"],
             "osd.0": ["mon", "allow profile osd", "--cap", "osd", "allow *"]}


def has_ceph():
    return all(map(shutil.which, ("ceph", "ceph-mon", "ceph-osd", "radosgw", "radosgw-admin")))


@contextlib.contextmanager
def ceph(folder):
    """A monitor, a disk in memory, and the gateway that speaks S3's protocol."""
    monitor, gateway = free_ports(2)
    fsid, osd, conf, servers = uuid.uuid4(), uuid.uuid4(), folder / "ceph.conf", []
    conf.write_text(CEPH_CONF.format(fsid=fsid, top=folder, monitor=monitor, gateway=gateway))
    (folder / "mon").mkdir()
    (folder / "osd").mkdir()
    log = open(folder / "log", "ab")

    def run(*command):
        subprocess.run([str(c) for c in command], check=True, stdout=log, stderr=log)

    def serve(program, *how):
        servers.append(subprocess.Popen([program, "-c", conf, "-f", *how], stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def made_bucket():
        assert all(server.poll() is None for server in servers), (folder / "log").read_text()[-2000:]
        with contextlib.suppress(botocore.exceptions.EndpointConnectionError, botocore.exceptions.ConnectionClosedError):
            return store.client.create_bucket(Bucket=BUCKET)

    try:
        for name, caps in CEPH_KEYS.items():
            run("ceph-authtool", *(["--create-keyring"] if name == "mon." else []), folder / "keyring", "-n", name,
                "--gen-key", "--cap", *caps)
        run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{monitor}]", folder / "monmap")
        run("ceph-mon", "-c", conf, "--mkfs", "-i", "a", "--monmap", folder / "monmap", "--keyring", folder / "keyring")
        serve("ceph-mon", "-i", "a")
        run("ceph", "-c", conf, "osd", "new", osd)
        run("ceph-osd", "-c", conf, "-i", "0", "--mkfs", "--osd-uuid", osd)
        serve("ceph-osd", "-i", "0")
        run("radosgw-admin", "-c", conf, "user", "create", "--uid", "tests", "--display-name", "tests", "--access-key",
            ID, "--secret", SECRET)
        serve("radosgw", "-n", "client.admin")
        store = Store(f"http://127.0.0.1:{gateway}")
        eventually(made_bucket)
        yield store
    finally:
        for server in reversed(servers):
            server.kill()
            server.wait()


class Request:
    def __init__(self, method, path, headers):
        self.method, self.headers = method, dict(headers)
        split = urlsplit(path)
        self.path, self.query = split.path, {k: v[0] for k, v in parse_qs(split.query).items()}
        self.is_list = "list-type" in self.query

    def bytes(self):
        """How many are asked for, by the Range."""
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        return int(last) + 1 - int(first)


class Proxy:
    """proxy.faults: what becomes of the requests to come, one after another. Each is a function of the handler, its
    request and the store's answer (status, headers, body), which returns the answer to be given or None if it has
    answered itself. proxy.always is asked where there is none."""

    def __init__(self, store):
        self.requests, self.faults, self.always = [], [], None
        self.under_way = self.most_under_way = 0
        self.namespace = ""  # before the paths, and not known to the store
        self.lock = threading.Lock()
        to = urlsplit(store.address)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                request = Request("GET", self.path, self.headers)
                with proxy.lock:
                    proxy.requests.append(request)
                    proxy.under_way += 1
                    proxy.most_under_way = max(proxy.most_under_way, proxy.under_way)
                    fault = proxy.faults.pop(0) if proxy.faults else proxy.always
                connection = http.client.HTTPConnection(to.hostname, to.port)
                connection.putrequest("GET", self.path.removeprefix(proxy.namespace), skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders()
                answer = connection.getresponse()
                found = answer.status, dict(answer.getheaders()), answer.read()
                connection.close()
                if fault:
                    found = fault(self, request, found)
                with proxy.lock:
                    proxy.under_way -= 1
                if found:
                    self.give(*found)

            def give(self, status, headers, body, length=None):
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def lists(self):
        return [r for r in self.requests if r.is_list]

    def reads(self):
        return [r for r in self.requests if not r.is_list]

    def clear(self):
        self.requests, self.faults, self.always = [], [], None
        self.under_way = self.most_under_way = 0

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def status(number, code):
    def fault(handler, request, found):
        return number, {"Content-Type": "application/xml"}, f"<Error><Code>{code}</Code></Error>".encode()

    return fault


def reset(handler, request, found):
    handler.close_connection = True
    handler.connection.close()


def short(handler, request, found):
    """Half of the body that the header promises."""
    number, headers, body = found
    handler.give(number, headers, body[: len(body) // 2], len(body))
    handler.close_connection = True


def slow(seconds):
    def fault(handler, request, found):
        time.sleep(seconds)
        return found

    return fault


@contextlib.contextmanager
def role_service(token):
    """The metadata service of a machine, by its second version, and that of a container's role at /container."""
    found = {"AccessKeyId": ID, "SecretAccessKey": SECRET, "Token": token, "Expiration": "2099-01-01T00:00:00Z"}

    class Handler(BaseHTTPRequestHandler):
        def give(self, body, right=True):
            self.send_response(200 if right else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PUT(self):
            self.give(b"of-this-machine", self.path == "/latest/api/token")

        def do_GET(self):
            if self.path == "/container":
                self.give(json.dumps(found).encode(), self.headers["Authorization"] == "of-this-container")
            else:
                body = b"trainer" if self.path.endswith("/") else json.dumps(found).encode()
                self.give(body, self.headers["X-aws-ec2-metadata-token"] == "of-this-machine")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
