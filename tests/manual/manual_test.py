"""The manual pages and completions that the build makes, and whether the documentation names the options that there are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

BUILD = Path(os.environ["MULTIGRAIN_TEST_BUILD"])
SOURCE = Path(os.environ["MULTIGRAIN_TEST_SOURCE"])
COMMANDS = ("mgrun", "mgtop", "mgcc", "mgtrace", "mgbench", "mgstudy")
# mg++ has the page of the documentation that mgcc has.
INSTALLED = (*COMMANDS, "mg++")

sys.path.insert(0, str(SOURCE / "tools/manual"))
import manual  # noqa: E402


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


def completed(command: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    script = (
        f'source "{BUILD}/share/bash-completion/completions/{command}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        f'_multigrain_{command}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    return output("bash", "--norc", "-c", script, "bash", command, *words).split()


class Pages(unittest.TestCase):
    def page(self, command: str) -> Path:
        return BUILD / f"share/man/man1/{command}.1"

    def test_are_accepted_without_warnings(self) -> None:
        checkers = {
            "groff": ["groff", "-man", "-ww", "-z", "-Tutf8"],
            "mandoc": ["mandoc", "-Tlint", "-W", "warning"],
        }
        there = [checkers[name] for name in checkers if shutil.which(name)]
        if not there:
            self.skipTest("neither groff nor mandoc is installed")
        for command in INSTALLED:
            for checker in there:
                with self.subTest(command=command, checker=checker[0]):
                    done = subprocess.run(
                        [*checker, str(self.page(command))], capture_output=True, text=True, timeout=300, check=False
                    )
                    # A page has no date, so that it is the same whenever it is made.
                    said = re.sub(r'.* missing date, using "": TH\n', "", done.stdout + done.stderr)
                    self.assertEqual((done.returncode if said else 0, said), (0, ""))

    def test_name_every_option(self) -> None:
        for command in INSTALLED:
            page = self.page(command).read_text().replace("\\-", "-")
            for option in manual.all_options(str(BUILD / "bin" / command)):
                with self.subTest(command=command, option=option):
                    self.assertIn(f"\\fB{option}\\fR", page)

    def test_name_every_variable(self) -> None:
        page = self.page("mgrun").read_text()
        self.assertEqual(page.count(".SH ENVIRONMENT"), 1)
        table = (SOURCE / "src/base/settings.cpp").read_text()
        options = [flag for option in manual.help_of(str(BUILD / "bin/mgrun")).options() for flag in option.flags]
        variables = {"MULTIGRAIN_" + flag[2:].upper().replace("-", "_") for flag in options if flag.startswith("--")}
        variables = {each for each in variables if f'"{each}"' in table}
        self.assertIn("MULTIGRAIN_PROTOCOL", variables)
        variables |= {"MULTIGRAIN_SPIN", "MULTIGRAIN_PRIVATE_LIBRARIES"}
        for variable in variables:
            with self.subTest(variable=variable):
                self.assertIn(f"\\fB{variable}\\fR", page)
        pages = "".join(self.page(command).read_text() for command in COMMANDS)
        for line in (SOURCE / "docs/user/mgrun.md").read_text().splitlines():
            if not (found := re.match(r"\| (`M[^|]*)\|", line)):
                continue
            for variable in re.findall(r"`(\w+)`", found[1]):
                with self.subTest(variable=variable):
                    self.assertIn(f"\\fB{variable}\\fR", pages)


class Completion(unittest.TestCase):
    def test_of_an_option(self) -> None:
        self.assertEqual(completed("mgrun", "--pro"), ["--procs-per-node", "--protocol", "--processes"])
        self.assertEqual(completed("mgrun", "--prot"), ["--protocol"])

    def test_of_a_value(self) -> None:
        self.assertEqual(completed("mgrun", "--protocol", ""), ["auto", "mgs", "hlrc", "sc", "placement", "dszoom", "shasta"])
        self.assertEqual(completed("mgrun", "--home", "b"), ["blocked"])

    def test_of_a_subcommand_and_its_options(self) -> None:
        self.assertIn("rights", completed("mgbench", "ri"))
        self.assertEqual(completed("mgbench", "rights", "--th"), ["--threads"])
        self.assertEqual(completed("mgbench", "--th"), [])
        self.assertEqual(completed("mgstudy", "family", "--repe"), ["--repetitions"])

    def test_is_good_zsh(self) -> None:
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        for command in INSTALLED:
            with self.subTest(command=command):
                output("zsh", "-n", str(BUILD / f"share/zsh/site-functions/_{command}"))

    def fish(self, command: str) -> Path:
        return BUILD / f"share/fish/vendor_completions.d/{command}.fish"

    def test_of_fish_names_every_option(self) -> None:
        for command in INSTALLED:
            lines = self.fish(command).read_text().splitlines()
            offered = {
                dashes + name
                for line in lines
                for letter, name in re.findall(r" -([los]) (\S+)", line.split(" -d ")[0])
                for dashes in ["--" if letter == "l" else "-"]
            }
            wanted = {option.rstrip("=") for option in manual.all_options(str(BUILD / "bin" / command))}
            with self.subTest(command=command):
                self.assertEqual(wanted - offered, set())

    def test_is_good_fish(self) -> None:
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        for command in INSTALLED:
            with self.subTest(command=command):
                output("fish", "--no-config", "-n", str(self.fish(command)))

        def of_fish(line: str) -> list[str]:
            name = line.split()[0]
            done = output("fish", "--no-config", "-c", f"source {self.fish(name)}; complete -C '{line}'")
            return sorted(each.split("\t")[0] for each in done.splitlines())

        self.assertEqual(of_fish("mgrun --protoc"), ["--protocol"])
        self.assertIn("shasta", of_fish("mgrun --protocol "))
        self.assertIn("rights", of_fish("mgbench ri"))
        self.assertEqual(of_fish("mgbench rights --thr"), ["--threads"])


class RepeatedOptions(unittest.TestCase):
    """mgstudy repeats options of mgrun, which has them from the table of settings."""

    def test_are_those_of_mgrun(self) -> None:
        of_mgrun = {option.flags[-1]: option for option in manual.help_of(str(BUILD / "bin/mgrun")).options()}
        sections = manual.help_of(str(BUILD / "bin/mgstudy"), "family").sections
        repeated = next(each.options for each in sections if each.title == "the machine, as for mgrun")
        # These are mgstudy's own, or have another default.
        repeated = [each for each in repeated if each.flags[-1] not in ("--clock", "--mgrun-option", "--mgrun")]
        self.assertIn("--net", [each.flags[-1] for each in repeated])
        for option in repeated:
            name = option.flags[-1]
            with self.subTest(option=name):
                self.assertIn(name, of_mgrun)
                self.assertEqual(option.value, of_mgrun[name].value)
                choices = set(of_mgrun[name].choices)
                named = choices & set(re.findall(r"[-\w]+", option.text))
                self.assertIn(named, [set(), choices], "mgstudy names some of mgrun's values, and not others")


class Machines(unittest.TestCase):
    """docs/user/machines.md, and the machines that mgrun lists."""

    def rows(self, title: str) -> list[list[str]]:
        """The cells of the table whose first column has this title."""
        lines = iter((SOURCE / "docs/user/machines.md").read_text().splitlines())
        next(line for line in lines if line.startswith(f"| {title} |"))
        next(lines)
        rows = []
        while (line := next(lines)).startswith("| "):
            rows.append([cell.strip(" `") for cell in line.strip("| ").split(" | ")])
        return rows

    def test_are_those_of_the_table(self) -> None:
        listed = []
        for entry in output(str(BUILD / "bin/mgrun"), "--machine", "list").split("\n\n")[1:-1]:
            found = re.fullmatch(r"(\S+) +([\d.]+ MHz), network (\S+)\n(.*)", entry, flags=re.DOTALL)
            if not found:
                self.fail(f"mgrun lists a machine in another form: {entry}")
            name, clock, network, said = found.groups()
            listed.append([name, clock, network, " ".join(said.split("Source: ")[0].split())])
        self.assertIn("today-rdma", [row[0] for row in listed])
        self.assertEqual(self.rows("machine"), listed)

    def test_have_the_prices_of_the_table(self) -> None:
        described = json.loads((SOURCE / "machines/alewife.json").read_text())["costs"]
        prices = [name for name in described if name not in ("unit", "source")]
        self.assertEqual([row[0] for row in self.rows("price")], prices)


class Documentation(unittest.TestCase):
    def test_names_options_that_there_are(self) -> None:
        for command in COMMANDS:
            known = {option.rstrip("=") for option in manual.all_options(str(BUILD / "bin" / command))}
            for line in (SOURCE / f"docs/user/{command}.md").read_text().splitlines():
                # The first cell of a table of options; what it shows may be commands of others.
                if not (found := re.match(r"\| (`-[^|]*)\|", line)):
                    continue
                for option in re.findall(r"`(-[-\w]+)", found[1]):
                    with self.subTest(command=command, option=option):
                        self.assertIn(option, known)

    def test_names_every_option_of_mgrun(self) -> None:
        tables = "\n".join(
            line for line in (SOURCE / "docs/user/mgrun.md").read_text().splitlines() if line.startswith("| `-")
        )
        for option in manual.help_of(str(BUILD / "bin/mgrun")).options():
            if option.flags[-1] in ("--help", "--version"):
                continue
            with self.subTest(option=option.flags[-1]):
                self.assertRegex(tables, f"`{option.flags[-1]}[` ]")


if __name__ == "__main__":
    unittest.main()
