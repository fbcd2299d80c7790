"""A headless Chromium for pages that open offline: what it complained about, what it asked the network for."""

import base64
import json
import shutil
import tempfile

from selenium import webdriver

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="multigrain-browser-")
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                         "--disable-background-networking", "--disable-component-update", "--disable-sync",
                         "--disable-dev-shm-usage", f"--user-data-dir={self.profile.name}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        try:
            self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        except BaseException:
            self.profile.cleanup()
            raise

    def close(self):
        self.driver.quit()
        self.profile.cleanup()

    def open(self, path, width=1200, height=900):
        """Forgets what was complained about before."""
        self.driver.get("about:blank")
        self.complaints()
        self.requests()
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
        self.driver.get(f"file://{path}")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def complaints(self):
        """What the console has of warnings and errors since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self):
        """The addresses that were asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]

    def move_mouse(self, x, y):
        for step in (2, 1, 0):  # a page notices movement
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x - step, "y": y})

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            code = {" ": ("Space", 32), "Tab": ("Tab", 9), "Enter": ("Enter", 13)}[key]
            self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {
                "type": kind, "key": key, "code": code[0], "windowsVirtualKeyCode": code[1], **text})

    def print(self):
        """As PDF."""
        answer = self.driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
        return base64.b64decode(answer["data"])
