"""mgtrace report: the page is written, shows what mgtrace analyze computes, and works in a browser without a network."""

import json
import os
import re
import sys
import tempfile
import unittest

from browser import CHROMIUM, DRIVER, Browser
from traces import NASTY, mgtrace, write_small_trace

OPTIONS = ("--machine", "cc,numa,cxl3,dsm", "--block-size", "32,64,1K,4K,64K", "--tlb", "all")


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="multigrain-report-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.trace = cls.file("small.mgt")
        write_small_trace(cls.trace)
        cls.report = cls.file("report.html")
        cls.result = mgtrace("report", cls.trace, "-o", cls.report, *OPTIONS)

    @classmethod
    def file(cls, name):
        return f"{cls.folder.name}/{name}"

    def text(self):
        with open(self.report, encoding="utf-8") as file:
            return file.read()


class Writing(Report):
    def test_is_written_without_a_word(self):
        self.assertEqual(self.result, (0, "", ""))
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["report.html", "small.mgt"])
        text = self.text()
        self.assertIn(f"mgtrace report {self.trace} -o {self.report} --machine", text)
        self.assertIn("Table 6.2 and section 6.1.2", text)  # where machines come from
        self.assertIn("1 local and 1 gap perturbation", text)

    def test_shows_what_analyze_computes(self):
        out = self.file("analysis.json")
        self.addCleanup(os.remove, out)
        # These are the report's defaults.
        status, _, err = mgtrace("analyze", self.trace, *OPTIONS, "--policy", "all", "--vary", "R,r,G,g,o_s", "--false-sharing",
                                 "--perturb", "1", "--json", out)
        self.assertEqual((status, err), (0, ""))
        again = self.file("again.html")
        self.addCleanup(os.remove, again)
        self.assertEqual(mgtrace("report", "--from", out, "-o", again), (0, "", ""))
        with open(again, encoding="utf-8") as file:
            text = file.read()
        command = re.compile(r"mgtrace (report|analyze) [^<]*<")
        self.assertEqual(command.sub("", text), command.sub("", self.text()))
        with open(out, encoding="utf-8") as file:
            study = json.load(file)
        mcpr = json.loads(re.search(r'<figure id="mcpr".*?<script type="application/json">(.*?)</script>', text, re.S)[1])
        bars = {}
        for trace in mcpr["views"][""]["data"]:
            bars.update({(name.split("<br>")[0], trace["name"]): value for name, value in zip(trace["x"], trace["y"])})
        wanted = {(machine["machine"]["name"], result["policy"]): float(f"{result['mcpr']:.6g}")
                  for machine in study["machines"] for result in machine["results"]}
        self.assertEqual(bars, wanted)
        self.assertGreater(len(bars), 15)

    def test_opens_with_what_to_repair(self):
        def first_section(*options):
            page = self.file("repairs.html")
            self.addCleanup(lambda: os.path.exists(page) and os.remove(page))
            self.assertEqual(mgtrace("report", self.trace, "-o", page, "--force", *options), (0, "", ""))
            with open(page, encoding="utf-8") as file:
                text = file.read()
            section = text[text.index("<section"):]
            return section[:section.index("</section>")]

        section = first_section("--perturb", "0", "--policy", "first-touch", "--vary", "R")
        self.assertIn('id="repairs"', section)
        self.assertNotIn(NASTY, section)
        # Each of the 400 rounds takes the counters' line to and fro; the table's lines are never written.
        self.assertIn("<b>798 of 799 moves</b> of written blocks of 64 B are useless", section)
        self.assertIn("On the machine cache-lines they take an estimated 40.7 us", section)
        self.assertIn("bytes 0 to 7: read and written by processor 0", section)
        self.assertIn("<b>repair</b>: give each of these a line of its own (alignas, padding): 0 moves instead of 799, ", section)
        section = first_section("--quick", "--false-sharing", "--block-size", "8", "--attribute-at", "8")
        self.assertIn("<b>No false sharing</b> in blocks of 8 B", section)
        self.assertNotIn('id="repairs"', first_section("--quick"))

    def test_dilation_is_no_power_of_ten(self):
        out, page = self.file("dilated.json"), self.file("dilated.html")
        for path in (out, page):
            self.addCleanup(lambda path=path: os.path.exists(path) and os.remove(path))
        self.assertEqual(mgtrace("analyze", self.trace, "--machine", "cc", "--json", out)[0], 0)
        with open(out, encoding="utf-8") as file:
            study = json.load(file)
        self.assertEqual(study["trace"]["dilation"], 2.5)
        for dilation, wanted in ((2.5, "2.5"), (5562.04, "5,562.0"), (1.25e7, "12,500,000.0")):
            study["trace"]["dilation"] = dilation
            with open(out, "w", encoding="utf-8") as file:
                json.dump(study, file)
            with self.subTest(dilation):
                self.assertEqual(mgtrace("report", "--from", out, "-o", page, "--force"), (0, "", ""))
                with open(page, encoding="utf-8") as file:
                    self.assertIn(f"<dt>Dilation</dt><dd>{wanted} times the untraced run</dd>", file.read())

    # Two threads on one core have one cache, which holds the whole small trace.
    def test_says_where_threads_run_and_what_caches_answer(self):
        page = self.file("mapped.html")
        self.addCleanup(os.remove, page)
        self.assertEqual(mgtrace("report", self.trace, "-o", page, "--machine", "two-socket", "--map", "0-1:0.0", "--caches", "today",
                                 "--contention"), (0, "", ""))
        with open(page, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("2,400 references by 2 processors, and 2,400 private ones, on 1 cores of 1 nodes", text)
        # The lines of 400 of the table's words and that of the counters are read once each.
        self.assertIn("51 times for the first time, 0 times because they had replaced them, and 0 times because another", text)
        self.assertIn("It is the mean of the references that miss the caches.", text)
        self.assertIn("MCPR with contention", text)
        self.assertNotIn("MCPR with contention", self.text())
        self.assertNotIn("that miss the caches", self.text())

    def test_shows_the_best_block_of_each_allocation(self):
        page = self.file("variable.html")
        self.addCleanup(os.remove, page)
        self.assertEqual(mgtrace("report", self.trace, "-o", page, "--machine", "cc", "--block-size", "8,4K", "--variable-blocks"),
                         (0, "", ""))
        with open(page, encoding="utf-8") as file:
            text = file.read()
        section = text[text.index('id="variable-blocks"'):]
        section = section[:section.index("</section>")]
        self.assertIn("with the best size for each allocation", section)
        self.assertIn("<td class=right>8 B</td>", section)  # the counters
        self.assertNotIn(NASTY, section)

    def test_does_not_write_over_a_file(self):
        before = self.text()
        status, _, err = mgtrace("report", self.trace, "-o", self.report)
        self.assertEqual((status, err), (2, f"mgtrace: {self.report} exists; give --force to replace it\n"))
        self.assertEqual(self.text(), before)

    def test_bad_input_gets_a_sentence_and_writes_nothing(self):
        bad, out = self.file("bad.json"), self.file("out.html")
        self.addCleanup(os.remove, bad)
        for contents, sentence in (
            ("", "is no JSON"), ("[1]", "is not what mgtrace analyze"), ('{"schema": "mgtrace-analysis", "version": 2}', "version 2"),
            ('{"schema": "mgtrace-analysis", "version": 1}', "lacks what a report needs"),
        ):
            with open(bad, "w", encoding="utf-8") as file:
                file.write(contents)
            with self.subTest(contents):
                status, _, err = mgtrace("report", "--from", bad, "-o", out)
                self.assertEqual(status, 2)
                self.assertRegex(err, f"^mgtrace: {bad} .*{sentence}[^\n]*\n$")
        for arguments in (("--from", self.file("nothing")), (self.file("nothing"),), (self.trace, "--from", bad), ()):
            with self.subTest(arguments):
                status, _, err = mgtrace("report", *arguments, "-o", out)
                self.assertEqual((status, len(err.splitlines())), (2, 1))
        self.assertEqual(mgtrace("report", self.trace, "-o", self.file("no/folder.html"), "--quick")[0], 2)
        self.assertFalse(os.path.exists(out))

    def test_says_what_python_lacks(self):
        out = self.file("out.html")
        status, _, err = mgtrace("report", self.trace, "-o", out, MULTIGRAIN_PYTHON="/no/python")
        self.assertEqual(status, 2)
        self.assertIn("cannot run '/no/python'", err)
        bare = self.file("bare-python")
        self.addCleanup(os.remove, bare)
        with open(bare, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # no packages but its own
        os.chmod(bare, 0o755)
        status, _, err = mgtrace("report", self.trace, "-o", out, MULTIGRAIN_PYTHON=bare)
        self.assertEqual(status, 2)
        self.assertRegex(err, "^mgtrace: .* has no package 'plotly', which reports need: run cmake/setup.sh build, or [^\n]*\n$")
        self.assertFalse(os.path.exists(out))


@unittest.skipUnless(CHROMIUM and DRIVER, "Chromium and its driver are not installed")
class InTheBrowser(Report):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.open(self.report)

    def point_at(self, figure, selector):
        """Moves the mouse to the top of a bar, which may go on below the axis."""
        box = self.browser.run(
            "const figure = document.getElementById(arguments[0]); figure.scrollIntoView({behavior: 'instant'});"
            "const box = figure.querySelector(arguments[1]).getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + 4]", figure, selector)
        self.browser.move_mouse(*box)

    def hovered(self, figure):
        self.browser.driver.implicitly_wait(5)
        return self.browser.driver.find_element("css selector", f"#{figure} .hoverlayer text").text

    def shown(self, figure, name):
        return self.browser.run(
            "return document.querySelector(`#${arguments[0]} .plot`).data.find(trace => trace.name === arguments[1]).visible", figure, name)

    def button(self, figure, name):
        button = self.browser.driver.find_element("css selector", f'#{figure} .legend button[data-name="{name}"]')
        # At the window's edge it may be half in sight, and the driver's click beside it.
        self.browser.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
        return button

    def test_opens_without_complaint_or_network(self):
        names = ["mcpr", "block-size", "components-areas", "hot", "sharing", "owners", "plans", "tlb-misses"]
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('figure')].map(figure => figure.id)"), names)
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('figure .main-svg:first-child')].length"), len(names))
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual([url for url in self.browser.requests() if not url.startswith(("file:", "data:"))], [])

    def test_strings_of_the_trace_stay_text(self):
        self.assertEqual(self.browser.run("return document.querySelectorAll('img').length"), 0)
        self.assertIn(NASTY, self.browser.run("return document.querySelector('#owners table').textContent"))
        self.assertIn(NASTY[:10], self.browser.run("return document.querySelector('#owners .ytick').textContent"))

    def test_hovering_tells_the_numbers(self):
        self.point_at("mcpr", ".barlayer .point path")
        self.assertRegex(self.hovered("mcpr"), r"cc, 64 B, optimal\s*MCPR [\d.]+ ±")
        self.assertEqual(self.browser.complaints(), [])

    def test_the_legend_hides_and_shows(self):
        self.assertTrue(self.shown("mcpr", "competitive"))
        self.button("mcpr", "competitive").click()
        self.assertEqual(self.shown("mcpr", "competitive"), "legendonly")
        self.assertEqual(self.button("mcpr", "competitive").get_attribute("aria-pressed"), "false")
        self.button("mcpr", "competitive").click()
        self.assertTrue(self.shown("mcpr", "competitive") is True)
        # The policy's line is hidden at first.
        self.assertEqual(self.shown("components-areas", "competitive"), "legendonly")

    def test_the_keyboard_will_do(self):
        self.browser.run("const button = document.querySelector('#mcpr .legend button[data-name=optimal]'); button.focus()")
        self.browser.press("Tab")
        name = self.browser.run("return document.activeElement.dataset.name")
        self.assertNotIn(name, (None, "optimal"))
        self.browser.press(" ")
        self.assertEqual(self.shown("mcpr", name), "legendonly")
        self.assertEqual(self.browser.run("return document.activeElement.dataset.name"), name)  # the focus stays

    def test_selects_choose_the_chart(self):
        from selenium.webdriver.support.select import Select

        def axis():
            return self.browser.run("return document.querySelector('#components-areas .plot').layout.xaxis.title.text")

        machine, varied = (Select(each) for each in self.browser.driver.find_elements("css selector", "#components-areas select"))
        machine.select_by_visible_text("numa")
        varied.select_by_visible_text("r, cost of a remote reference")
        self.assertIn("r, cost of a remote", axis())
        machine.select_by_visible_text("dsm")  # which has none: another chart, not an empty one
        self.assertNotIn("r, cost of a remote", axis())
        self.assertEqual(varied.first_selected_option.text, "R, cost of moving a block")
        self.assertEqual(self.browser.complaints(), [])

    def test_fits_a_phone(self):
        self.browser.open(self.report, width=390, height=844)
        self.assertEqual(self.browser.run("return [innerWidth, document.documentElement.scrollWidth]"), [390, 390])
        wide = self.browser.run(
            "return [...document.querySelectorAll('.main-svg, select, h1, h2, h3')].filter(each => each.getBoundingClientRect().right > 390)"
            ".map(each => each.outerHTML.slice(0, 200))")
        self.assertEqual(wide, [])
        # Opened tables scroll in themselves.
        self.browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
        self.assertEqual(self.browser.run("return document.documentElement.scrollWidth"), 390)
        self.assertEqual(self.browser.complaints(), [])

    def test_prints(self):
        self.browser.run("window.widths = []; window.addEventListener('beforeprint', () => {"
                         "widths = [...document.querySelectorAll('.main-svg')].map(each => Number(each.getAttribute('width')))})")
        self.assertTrue(self.browser.print().startswith(b"%PDF"))
        widths = self.browser.run("return widths")
        self.assertEqual((min(widths), max(widths)), (680, 680))  # of A4 less the margins
        self.assertGreater(self.browser.run("return document.querySelector('.main-svg').getBoundingClientRect().width"), 700)
        self.assertEqual(self.browser.complaints(), [])


if __name__ == "__main__":
    unittest.main()
