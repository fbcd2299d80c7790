"""Without mgrun a program runs on one processor; and what cannot be done is said in a sentence."""

import os
import sys
import unittest

import multigrain
from arrays_test import ADD, BLAS, FILES
from programs import ProgramTest
from running_test import COPIES, ERRORS, LEFT, LOCKS, WHO


class Alone(ProgramTest):
    def test_the_same_programs(self):
        for text, wanted in ((ADD, "right 1 1\n"), (BLAS, "right\n"), (FILES, "right\n"), (COPIES, "right\n"),
                             (ERRORS, "right\n"), (LEFT, "right\n"), (LOCKS, "right\n"), (WHO, "right\n")):
            ended = self.start((sys.executable, self.file(text)))
            self.assertEqual((ended.stdout, ended.stderr, ended.returncode), (wanted, "", 0), text)

    def test_there_is_no_checkpoint(self):
        text = """
            import multigrain as mg
            print(mg.restored(), mg.checkpoint([mg.array(3)]))
        """
        ended = self.start((sys.executable, self.file(text)))
        self.assertEqual((ended.stdout, ended.stderr, ended.returncode), ("None False\n", "", 0))

    def test_nodes_need_mgrun(self):
        ended = self.start((sys.executable, self.file(ADD)), {"MULTIGRAIN_NODES": "2"})
        self.assertEqual(ended.returncode, 1)
        self.assertIn("MULTIGRAIN_NODES is 2, but this Python was not started by mgrun", ended.stderr)

    def test_numpy_is_needed_for_arrays_alone(self):
        text = """
            import sys
            sys.modules["numpy"] = None
            import multigrain as mg
            assert mg.run(pow, 2, 3) == [8]
            mg.array(3)
        """
        ended = self.start((sys.executable, self.file(text)))
        self.assertEqual(ended.returncode, 1)
        self.assertIn("this Python has no NumPy", ended.stderr)

    def test_a_forked_child_is_no_node(self):
        text = """
            import os
            import multigrain as mg
            mg.array(3)
            if os.fork() == 0:
                try:
                    mg.processors()
                except mg.MultigrainError as error:
                    assert "forked" in str(error)
                    os._exit(3)
            print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
        self.assertEqual(self.output_of(text, 2, 1), "3\n")

    def test_another_version(self):
        text = """
            from multigrain.shared import library
            library.VERSION = "0.0.7"
            import multigrain as mg
            mg.processors()
        """
        ended = self.mgrun(text, 2, 1)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("this package is of 0.0.7: use the same version", ended.stderr)


class Package(unittest.TestCase):
    def test_all_that_is_promised_is_there(self):
        from multigrain import shared

        self.assertEqual(sorted(multigrain.__all__), sorted(shared.__all__))
        for name in multigrain.__all__:
            self.assertIsNotNone(getattr(multigrain, name))
        with self.assertRaises(AttributeError):
            multigrain.nothing  # noqa: B018

    def test_versions_agree(self):
        from multigrain.shared import library

        with open(os.path.join(os.path.dirname(__file__), "../../include/multigrain/multigrain.h")) as file:
            header = file.read()
        version = ".".join(header.split(f"#define MG_VERSION_{part} ")[1].split()[0] for part in ("MAJOR", "MINOR", "PATCH"))
        self.assertEqual(library.VERSION, version)
        self.assertEqual(multigrain.__version__, version)
