"""The notebook among the examples: its cells run one after another as a kernel runs them, and, where Jupyter is installed, by the
kernel whose description lies beside it. No browser is needed for either."""

import json
import os
import sys
import unittest

from programs import BIN, ProgramTest

EXAMPLES = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../examples/python"))
NOTEBOOK = os.path.join(EXAMPLES, "notebook.ipynb")

# What a kernel does: cells are no file that another interpreter could import, and their functions are of a module __main__ that only
# this one has.
KERNEL = """
import json, linecache, sys, types

def main():
    with open(sys.argv[1]) as file:
        cells = [cell for cell in json.load(file)["cells"] if cell["cell_type"] == "code"]
    user = types.ModuleType("__main__")
    sys.modules["__main__"] = user
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"<cell {number}>", "exec"), user.__dict__)

if __name__ == "__main__":
    main()
"""

AGREED = (
    "both agree: True",
    "{100: 43, 1000: 330, 10000: 2749, 100000: 24028}",
    "thrown by each processor: 10000",
)


def has(*modules):
    try:
        for module in modules:
            __import__(module)
    except ImportError:
        return False
    return True


class Notebook(ProgramTest):
    def test_it_is_kept_without_what_it_has_printed(self):
        with open(NOTEBOOK) as file:
            notebook = json.load(file)
        self.assertEqual((notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]), (4, "multigrain"))
        for cell in notebook["cells"]:
            self.assertEqual((cell.get("outputs", []), cell.get("execution_count")), ([], None))

    def check_output(self, text, machine):
        self.assertTrue(text.startswith(machine + "\n"), text)
        for line in AGREED:
            self.assertIn(line + "\n", text)

    def test_cells_on_one_node(self):
        self.check_output(self.output_of(KERNEL, 1, 2, arguments=(NOTEBOOK,)), "1 nodes, 2 processors")

    def test_cells_on_two_nodes(self):
        if has("cloudpickle"):
            self.check_output(self.output_of(KERNEL, 2, 1, arguments=(NOTEBOOK,)), "2 nodes, 2 processors")
            return
        ended = self.mgrun(KERNEL, 2, 1, arguments=(NOTEBOOK,))
        self.assertEqual(ended.returncode, 1)
        self.assertIn("only with cloudpickle: pip install cloudpickle", ended.stderr)

    @unittest.skipUnless(
        has("nbclient", "ipykernel", "cloudpickle"), "this Python has no nbclient, ipykernel and cloudpickle"
    )
    def test_by_its_kernel(self):
        import nbclient
        import nbformat

        # The kernel is found by the environment, as the user's own would be, with this Python and this mgrun.
        folder = os.path.join(self.folder, "kernels", "multigrain")
        os.makedirs(folder)
        with open(os.path.join(EXAMPLES, "kernel/kernel.json")) as file:
            kernel = json.load(file)
        kernel["argv"] = [
            {"mgrun": os.path.join(BIN, "mgrun"), "python3": sys.executable}.get(word, word) for word in kernel["argv"]
        ]
        with open(os.path.join(folder, "kernel.json"), "w") as file:
            json.dump(kernel, file)
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ.update(JUPYTER_PATH=self.folder, IPYTHONDIR=self.folder, JUPYTER_RUNTIME_DIR=self.folder)
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        nbclient.NotebookClient(notebook, timeout=300, startup_timeout=300, kernel_name="multigrain").execute()
        printed = "".join(
            output["text"]
            for cell in notebook.cells
            for output in cell.get("outputs", [])
            if output.get("name") == "stdout"
        )
        self.check_output(printed, "2 nodes, 2 processors")


if __name__ == "__main__":
    unittest.main()
