"""The wheel, installed by pip into an environment of its own, and used without anything of the build tree."""

import glob
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
import unittest

from arrays_test import ADD
from programs import BIN, ProgramTest
from running_test import ERRORS, WHO

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.path.dirname(BIN)


class Wheel(ProgramTest):
    def call(self, *words, environment=None):
        ended = subprocess.run(words, capture_output=True, text=True, timeout=600, env=environment, cwd=self.folder)
        self.assertEqual(ended.returncode, 0, f"{words}: {ended.stdout}{ended.stderr}")
        return ended.stdout

    def install(self):
        """Returns the environment's folder of commands, and a process's environment without ours."""
        script = os.path.join(SOURCE, "tools/wheel/wheel.py")
        commands = os.path.dirname(sys.executable)
        path = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
        wheel = self.call(sys.executable, "-B", script, BUILD, SOURCE, self.folder, environment=path).strip()
        self.assertTrue(os.path.getsize(wheel) < 25e6, os.path.getsize(wheel))
        self.call(sys.executable, "-m", "venv", "environment")
        python = os.path.join(self.folder, "environment/bin/python")
        self.call(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel)
        # NumPy is this Python's, so that the test needs no network.
        [site] = glob.glob(os.path.join(self.folder, "environment/lib/python*/site-packages"))
        with open(os.path.join(site, "numpy-of-the-build.pth"), "w") as file:
            file.write(sysconfig.get_paths()["purelib"] + "\n")
        return os.path.dirname(python), {"PATH": "/usr/bin:/bin", "HOME": self.folder}

    def test_installed_by_pip(self):
        commands, environment = self.install()
        mgrun, python = os.path.join(commands, "mgrun"), os.path.join(commands, "python")
        where = self.call(python, "-c", "import multigrain; print(multigrain.__file__)", environment=environment)
        self.assertTrue(where.startswith(self.folder), where)
        # Nothing of it is linked with what is in the build tree, or with libraries that are not in it.
        for file in ("bin/mgrun", "lib/libmultigrain.so.0.1", "lib/multigrain/multigrain-timeline.so"):
            linked = self.call("ldd", os.path.join(os.path.dirname(where), file), environment=environment)
            self.assertNotIn(BUILD, linked)
            self.assertNotIn("not found", linked)
            for name in re.findall(r"lib(?:fmt|hwloc|dw)\S* => (\S+)", linked):
                self.assertTrue(name.startswith(self.folder), linked)
        for text, wanted in ((ADD, "right 2 2\n"), (WHO, "right\n"), (ERRORS, "right\n")):
            program = self.file(text)
            self.assertEqual(self.call(mgrun, "-n", "2", "--", python, program, environment=environment), wanted)
        line = os.path.join(self.folder, "time.html")
        self.call(mgrun, "-n", "2", "--timeline", line, "--", python, self.file(ADD), environment=environment)
        self.assertTrue(os.path.getsize(line) > 1000)
        self.assertIn("alewife", self.call(mgrun, "--machine", "list", environment=environment))
        self.assertEqual(self.call(python, self.file(ADD), environment=environment), "right 1 1\n")

    def test_what_is_missing_is_said(self):
        wheel = os.path.join(SOURCE, "tools/wheel/wheel.py")
        ended = subprocess.run((sys.executable, wheel), capture_output=True, text=True)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("Usage: wheel.py", ended.stderr)
        script = textwrap.dedent("""
            import sys
            sys.path.insert(0, sys.argv[1])
            import wheel
            wheel.run("no-such-command")
        """)
        ended = subprocess.run(
            (sys.executable, "-B", "-c", script, os.path.dirname(wheel)), capture_output=True, text=True
        )
        self.assertEqual((ended.returncode, ended.stderr), (1, "wheel: there is no command no-such-command; cmake/setup.sh test installs it\n"))


if __name__ == "__main__":
    unittest.main()
