"""A headless Chromium, driven through chromedriver's WebDriver protocol."""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

KEYS = {"Tab": "\ue004", "Enter": "\ue007", "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "ArrowDown": "\ue015"}


class Browser:
    def __init__(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        assert shutil.which("chromium") and shutil.which("chromedriver"), \
            "not installed: chromium, chromium-driver (tools/packages.sh)"
        self.base = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while True:
            try:
                if self.ask("GET", "/status")["ready"]:
                    break
            except urllib.error.URLError:
                assert time.monotonic() < end, "chromedriver does not answer"
            time.sleep(0.1)
        options = {"args": ["--headless=new", "--no-sandbox", "--window-size=1200,900"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.base += "/session/" + self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, path):
        self.ask("POST", "/url", {"url": f"file://{path}"})

    def run(self, script):
        """What a function body of JavaScript returns."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": []})

    def press(self, *names):
        actions = [{"type": kind, "value": KEYS[name]} for name in names for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def tool(self, command, **params):
        """A command of the DevTools protocol: https://chromedevtools.github.io/devtools-protocol/"""
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def sized(self, width, height=900):
        """The page's width and height in CSS pixels, as on a screen of that size."""
        self.tool("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def media(self, name, **features):
        """How the page is shown: name is "print", "screen" or "" (as it is); features as in prefers_color_scheme="dark"."""
        self.tool("Emulation.setEmulatedMedia", media=name,
                  features=[{"name": k.replace("_", "-"), "value": v} for k, v in features.items()])

    def print(self):
        """The bytes of a PDF."""
        return base64.b64decode(self.ask("POST", "/print", {}))

    def frames(self, do):
        """Processor time of the page's thread in seconds for each frame that it draws while do() runs. Not seconds of a
        clock: these depend on what else the machine does."""
        def now():
            metrics = {m["name"]: m["value"] for m in self.tool("Performance.getMetrics")["metrics"]}
            return metrics["TaskDuration"], self.run("return window.framesDrawn")
        self.tool("Performance.disable")
        self.tool("Performance.enable", timeDomain="threadTicks")
        self.run("window.framesDrawn = 0; (function next() { window.framesDrawn++; requestAnimationFrame(next); })()")
        seconds, n = now()
        do()
        seconds_then, n_then = now()
        return (seconds_then - seconds) / (n_then - n)

    def console(self):
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})]

    def end(self):
        try:
            self.ask("DELETE", "")
        finally:
            self.process.terminate()
            self.process.wait()
