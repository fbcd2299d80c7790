"""The page of all rows (docs/studies/all-rows.md) has what the studies' pages say."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "study"))

import all_rows

ROOT = Path(all_rows.ROOT)
PAGES = ROOT / "docs" / "studies"


class Rows(unittest.TestCase):
    def test_the_page_is_up_to_date(self):
        text = all_rows.text_of(PAGES)
        self.assertIn(text.strip(), (PAGES / "all-rows.md").read_text("utf-8"))

    def test_every_row_of_a_page_is_there_once(self):
        for _, page in all_rows.PAGES:
            found = sum(len(rows) for _, rows in all_rows.tables_of(PAGES / page))
            lines = (PAGES / page).read_text("utf-8").splitlines()
            ends = tuple(f"| {verdict} |" for verdict in all_rows.VERDICTS)
            expected = sum(line.endswith(ends) and len(all_rows.cells_of(line)) == 6 for line in lines)
            self.assertEqual(found, expected, page)
            self.assertGreater(found, 0)

    def test_titles_and_verdicts(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            head = "| | theirs | ours | difference | bound | verdict |\n|---|---|---|---|---|---|\n"
            page.write_text(f"## One\n\n{head}| a | 1 | 1 | +0% | 2% | agrees |\n\nPaper, Table 1: what it is (A. Author: B). Of 1 rows 1 agree.\n\n"
                            f"And with it:\n\n{head}| b | 1 | 2 | +100% | 2% | differs |\n", "utf-8")
            first, second = all_rows.tables_of(page)
            self.assertEqual(first[0], "Table 1: what it is")
            self.assertEqual(second[0], "One: and with it")
            self.assertEqual(all_rows.counts_of(second[1]), [1, 0, 1, 0])
            with self.assertRaises(SystemExit):
                all_rows.counts_of([["c", "1", "2", "", "", "perhaps"]])

    def test_a_row_that_differs_has_its_causes(self):
        with tempfile.TemporaryDirectory() as folder:
            head = "| | theirs | ours | difference | bound | verdict |\n|---|---|---|---|---|---|\n"
            for _, page in all_rows.PAGES:
                (Path(folder) / page).write_text("", "utf-8")
            (Path(folder) / "mgs-study.md").write_text(
                f"## Figure 1\n\n{head}| a, time | 1 | 2 | +100% | 2% | differs |\n| b, time | 1 | 2 | +100% | 2% | differs |\n"
                "| c, time | 1 | 1 | +0% | 2% | agrees |\n", "utf-8")
            causes = Path(folder) / "causes.json"
            cause = {"name": "own time", "cause": "It is short.", "experiment": "A table.", "rows": [{"paper": "MGS", "table": "Figure 1", "row": "[ac], time"}]}
            causes.write_text(json.dumps([cause]), "utf-8")
            text = all_rows.text_of(folder, causes)
            self.assertIn("| a, time | 1 | 2 | +100% | 2% | differs | own time |", text)
            self.assertIn("| b, time | 1 | 2 | +100% | 2% | differs | unexplained |", text)
            self.assertIn("| c, time | 1 | 1 | +0% | 2% | agrees | |", text)
            self.assertIn("| all | | 3 | 1 | 2 | 1 | 0 |", text)
            self.assertIn("| own time | It is short. | A table. | 1 |", text)
            causes.write_text(json.dumps([{**cause, "rows": [{"paper": "MGS", "table": "Figure 1", "row": "c.*"}]}]), "utf-8")
            with self.assertRaises(SystemExit):
                all_rows.text_of(folder, causes)


if __name__ == "__main__":
    unittest.main()
