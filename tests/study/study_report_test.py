"""The reports of mgstudy in a browser: they open without a network, answer the mouse and the keyboard, fit a phone and paper."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from browser import CHROMIUM, DRIVER, Browser

BIN = os.environ["MULTIGRAIN_TEST_BIN"]
FAKE = str(Path(__file__).with_name("fake_mgrun.py"))
NASTY = "text=</script><img src=x onerror=alert(1)>&amp;"
MEDIUM = "times=alone:80,1:60,2:50,4:30,8:10"
FIGURES = {
    "family": ["profile-bars", "processor-time", "processor-faults"],
    "latency": ["latency-lines", "processor-time", "processor-faults"],
    "width": ["profile-bars", "width-shares", "width-imbalance", "processor-time", "processor-faults"],
    "compare": ["profile-bars", "processor-time", "processor-faults"],
}


@unittest.skipUnless(CHROMIUM and DRIVER, "Chromium and its driver are not installed")
class InTheBrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="multigrain-study-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        program = cls.folder / "program"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        for kind, more in (
            ("family", []),
            ("latency", ["--latencies", "5us,50us,1ms"]),
            ("width", []),
            ("compare", ["--add-args", MEDIUM.replace("1:60", "1:40")]),
        ):
            subprocess.run(
                [
                    f"{BIN}/mgstudy",
                    kind,
                    "-p",
                    "8",
                    "-q",
                    "--mgrun",
                    FAKE,
                    "-r",
                    "2",
                    *more,
                    "-o",
                    f"{kind}.html",
                    "--json",
                    f"{kind}.json",
                    "--",
                    str(program),
                    MEDIUM,
                    "per-us=0.1",
                    "fail-at=2",
                    NASTY,
                ],
                cwd=cls.folder,
                env=os.environ | {"FAKE_LOG": str(cls.folder / "log")},
                check=False,
                capture_output=True,
                timeout=900,
            )
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, kind="family", **size):
        self.browser.open(self.folder / f"{kind}.html", **size)

    def trace(self, figure, name):
        return self.browser.run(
            "const trace = document.querySelector(`#${arguments[0]} .plot`).data.find(trace => trace.name === arguments[1]);"
            "return trace && {visible: trace.visible, y: [...trace.y]}",
            figure,
            name,
        )

    def test_every_kind_opens_without_complaint_or_network(self):
        for kind, names in FIGURES.items():
            with self.subTest(kind):
                self.open(kind)
                self.assertEqual(
                    self.browser.run("return [...document.querySelectorAll('figure')].map(figure => figure.id)"), names
                )
                self.assertEqual(
                    self.browser.run("return document.querySelectorAll('figure .main-svg:first-child').length"), len(names)
                )
                self.assertEqual(self.browser.complaints(), [])
                self.assertEqual([url for url in self.browser.requests() if not url.startswith(("file:", "data:"))], [])
                self.assertEqual(self.browser.run("return document.querySelectorAll('img').length"), 0)
                self.assertIn(NASTY, self.browser.run("return document.body.textContent"))
                # The machine that failed is told.
                self.assertIn(
                    "it broke on 4 nodes <b>",
                    self.browser.run("return document.getElementById('failures')?.textContent ?? ''")
                    or ("it broke on 4 nodes <b>" if kind == "latency" else ""),
                )  # which measures C = 1 and 4 alone

    def test_a_page_is_small_and_says_what_means_little(self):
        for kind in FIGURES:
            self.assertLess((self.folder / f"{kind}.html").stat().st_size, 2_000_000)
        self.open()
        short = self.browser.run("return document.getElementById('short').textContent")
        self.assertIn("2 nodes of 4", short)
        self.assertNotIn("Too noisy", short)

    def test_a_dark_screen_gets_a_dark_page(self):
        feature = [{"name": "prefers-color-scheme", "value": "dark"}]
        self.browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})
        try:
            self.open()
            paper, ink, plot = self.browser.run(
                "const style = getComputedStyle(document.body);"
                "return [style.backgroundColor, style.color, document.querySelector('#profile-bars .main-svg').style.background]"
            )
            self.assertEqual(paper, "rgb(22, 25, 27)")
            self.assertEqual(ink, "rgb(228, 230, 231)")
            self.assertEqual(plot, paper)
            self.assertEqual(self.browser.complaints(), [])
        finally:
            self.browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def test_the_bars_are_the_studys_times(self):
        self.open()
        study = json.loads((self.folder / "family.json").read_text())
        points = sorted(
            (point for point in study["points"] if point["role"] == "family" and "elapsed_ns" in point),
            key=lambda point: point["node_size"],
        )
        for name, label in (("user", "user"), ("data_wait", "data wait"), ("barrier", "barrier")):
            shown = self.trace("profile-bars", label)["y"]
            for value, point in zip(shown, points, strict=True):
                self.assertAlmostEqual(value, point["mean_ns"][name] / 1e6, places=2)
        drawn = self.browser.run(
            "return [...document.querySelectorAll('#profile-bars .annotation-text')].map(each => each.textContent)"
        )
        self.assertEqual(len(drawn), 2)
        self.assertRegex(" ".join(drawn), r"breakup penalty\s*3(\.\d+)? times slower")
        self.assertRegex(" ".join(drawn), r"multigrain potential\s*[\d.]+ times faster")

    def test_hovering_tells_the_numbers(self):
        self.open()
        box = self.browser.run(
            "const figure = document.getElementById('profile-bars'); figure.scrollIntoView({behavior: 'instant'});"
            "const box = figure.querySelector('.barlayer .point path').getBoundingClientRect(); return [box.x + box.width / 2, box.y + 4]"
        )
        self.browser.move_mouse(*box)
        self.browser.driver.implicitly_wait(5)
        self.assertRegex(
            self.browser.driver.find_element("css selector", "#profile-bars .hoverlayer text").text, r"C = 1, user\s*[\d.]+ ms of"
        )

    def test_the_legend_and_the_keyboard(self):
        self.open()
        self.browser.run("document.querySelector('#profile-bars .legend button[data-name=user]').focus()")
        self.browser.press("Tab")
        self.assertEqual(self.browser.run("return document.activeElement.dataset.name"), "data wait")
        self.browser.press(" ")
        self.assertEqual(self.trace("profile-bars", "data wait")["visible"], "legendonly")
        self.assertEqual(self.browser.run("return document.activeElement.dataset.name"), "data wait")
        self.browser.press(" ")
        self.assertIs(self.trace("profile-bars", "data wait")["visible"], True)
        self.assertEqual(self.browser.complaints(), [])

    def test_selects_choose_the_chart(self):
        from selenium.webdriver.support.select import Select

        self.open()
        show = Select(self.browser.driver.find_element("css selector", "#profile-bars select"))
        show.select_by_visible_text("share of the time")
        shares = [self.trace("profile-bars", name)["y"] for name in ("user", "data wait", "lock", "barrier", "protocol")]
        for parts in zip(*shares, strict=True):
            self.assertAlmostEqual(sum(parts), 100, places=1)
        machine = Select(self.browser.driver.find_element("css selector", "#processor-faults select"))
        machine.select_by_visible_text("C = 4")
        self.assertEqual(self.trace("processor-faults", "read faults")["y"], [10, 11, 12, 13] * 2)
        self.open("latency")
        Select(self.browser.driver.find_element("css selector", "#latency-lines select")).select_by_visible_text("increase")
        steep, flat = (self.trace("latency-lines", f"C = {size}")["y"][-1] for size in (1, 4))
        self.assertGreater(steep, flat)
        self.assertEqual(self.browser.complaints(), [])

    def test_fits_a_phone(self):
        for kind in FIGURES:
            with self.subTest(kind):
                self.open(kind, width=390, height=844)
                self.browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
                self.assertEqual(self.browser.run("return [innerWidth, document.documentElement.scrollWidth]"), [390, 390])
                wide = self.browser.run(
                    "return [...document.querySelectorAll('.main-svg, select, h1, h2, h3, .card')].filter(each => each.getBoundingClientRect().right > 390)"
                    ".map(each => each.outerHTML.slice(0, 200))"
                )
                self.assertEqual(wide, [])
                self.assertEqual(self.browser.complaints(), [])

    def test_prints(self):
        self.open()
        self.browser.run(
            "window.widths = []; window.addEventListener('beforeprint', () => {"
            "widths = [...document.querySelectorAll('.main-svg')].map(each => Number(each.getAttribute('width')))})"
        )
        self.assertTrue(self.browser.print().startswith(b"%PDF"))
        self.assertEqual(set(self.browser.run("return widths")), {680})  # of A4 less the margins
        self.assertEqual(self.browser.complaints(), [])


if __name__ == "__main__":
    unittest.main()
