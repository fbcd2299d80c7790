#!/usr/bin/env python3
"""Repeats tables II to VII of the GeNIMA emulation paper on this system, and prints the tables of docs/genima-study.md.

usage: genima_study.py [--bin DIR] [--cache DIR] [--out DIR] [--repetitions N] [--clock-scale F]

The applications run under hlrc, in virtual time, on 32 and 64 processors in nodes of 4, 8 and 16, over VMMC on Myrinet and
over VMMC on the Origin 2000. --clock-scale slows processors and protocol down to the paper's 200 MHz (default 50: a
change of access rights then costs what it did on the paper's cluster, 40 to 80 us).
"""

from paper_study import PaperStudy, parser_of

APPLICATIONS = {
    "FFTst": ["fft", "--variant", "staggered"],
    "LU": ["lu"],
    "radixL": ["radix", "--variant", "local-buffer"],
    "ssort": ["samplesort"],
    "volrend": ["volrend"],
    "waterF": ["water-spatial"],
}
WIDTHS = [4, 8, 16]
# What the paper has, for the table beside: speedups (II, V) and the costs of a rights change (VII).
SPEEDUP = {
    "FFTst": {32: (23.8, 16.3, 5.7), 64: (26.6, 28.7, 12.4)},
    "LU": {32: (None, 18.5, None), 64: (32.9, 32.5, None)},
    "radixL": {32: (1.9, 1.8, None), 64: (1.0, 1.2, None)},
    "ssort": {32: (6.7, None, None), 64: (None, None, None)},
    "volrend": {32: (17.8, 17.7, 16.1), 64: (23.1, 24.8, 17.6)},
    "waterF": {32: (9.2, 4.9, 1.3), 64: (14.5, 8.5, 2.7)},
}
SHARES = {  # VI, for 64 processors on the Origin 2000: data, barrier, lock, mprotect; by width
    "FFTst": ("35.1, 21.1, 17.8", "22.4, 28.7, 19.0", "–", "6.6, 9.9, 12.6"),
    "LU": ("3.2, 3.2, –", "34.8, 35.0, –", "–", "1.4, 0.9, –"),
    "radixL": ("14.7, 13.5, –", "32.3, 31.4, –", "35.2, 28.2, –", "10.2, 4.4, –"),
    "ssort": ("4.1, –, –", "38.9, –, –", "–", "2.1, –, –"),
    "volrend": ("2.8, 2.6, 1.8", "56.1, 52.8, 62.1", "–", "7.0, 2.3, 1.0"),
    "waterF": ("28.4, 17.6, 12.2", "23.7, 31.6, 44.8", "1.0, 0.2, 0.0", "11.2, 10.7, 11.1"),
}
RIGHTS = {  # VII, microseconds
    "FFTst": (127.8, 199.5, 622.1),
    "LU": (55.4, 43.6, None),
    "radixL": (325.8, 296.4, None),
    "ssort": (None, None, None),
    "volrend": (404.2, 402.5, 569.4),
    "waterF": (87.1, 163.4, 674.9),
}
CALLS = ("grant_reads", "grant_writes", "revoke_writes", "revokes")


class Study(PaperStudy):
    def family(self, application, processors, network, access="userfault"):
        """Points by width, of one application; and the time on one processor."""
        program, *arguments = APPLICATIONS[application]
        study = self.run(f"{application}-{processors}-{network}-{access}", "width", "--procs", str(processors),
                         "--node-sizes", ",".join(map(str, WIDTHS)), "--net", network, "--protocol", "hlrc", "--access",
                         access, "--clock-scale", str(self.options.clock_scale), "--skew", "100us", "--",
                         *self.program(program), *arguments)
        points = [point for point in study["points"] if point.get("elapsed_ns")]
        alone = next((point["elapsed_ns"] for point in points if point["role"] == "sequential"), None)
        return {point["node_size"]: point for point in points if point["role"] == "family"}, alone

    def speedups(self):
        print("| | " + " | ".join(f"{p} processors, C = {c} | paper" for p in (32, 64) for c in WIDTHS) + " |")
        print("|---|" + "---:|---:|" * 6)
        for name in APPLICATIONS:
            cells = []
            for processors in (32, 64):
                points, alone = self.family(name, processors, "origin2000")
                for width, theirs in zip(WIDTHS, SPEEDUP[name][processors]):
                    cells += [f"{alone / points[width]['elapsed_ns']:.2f}" if alone and width in points else "failed",
                              "–" if theirs is None else str(theirs)]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)

    def networks(self, processors):
        print("| | network | data | barrier | lock | rights | diff |")
        print("|---|---|---:|---:|---:|---:|---:|")
        for name in APPLICATIONS:
            for network in ("myrinet", "origin2000"):
                points, _ = self.family(name, processors, network)
                if 4 in points:
                    print(f"| {name} | {network} | {' | '.join(shares(points[4]))} |", flush=True)

    def widths(self):
        print("| | data | paper | barrier | paper | lock | paper | rights | paper |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in APPLICATIONS:
            points, _ = self.family(name, 64, "origin2000")
            rows = [shares(points[width])[:4] if width in points else ["failed"] * 4 for width in WIDTHS]
            cells = [f"{', '.join(row[i] for row in rows)} | {SHARES[name][i]}" for i in range(4)]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)

    def rights(self):
        print("| | " + " | ".join(f"C = {c}, userfaultfd | mprotect | paper" for c in WIDTHS) + " |")
        print("|---|" + "---:|---:|---:|" * 3)
        for name in APPLICATIONS:
            by_access = [self.family(name, 64, "origin2000", access)[0] for access in ("userfault", "mprotect")]
            cells = []
            for width, theirs in zip(WIDTHS, RIGHTS[name]):
                cells += [f"{cost(points[width]):.1f}" if width in points else "failed" for points in by_access]
                cells.append("–" if theirs is None else str(theirs))
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def shares(point):
    parts = [point["mean_ns"]["data_wait"], point["mean_ns"]["barrier"], point["mean_ns"]["lock"], point["rights_ns"],
             point["diffs_ns"]]
    return [f"{100 * part / point['elapsed_ns']:.1f}%" for part in parts]


def cost(point):
    """Microseconds of the machine's, for each call that changes access rights."""
    calls = sum(point["counters"][name] for name in CALLS)
    return point["rights_ns"] * len(point["processors"]) / max(calls, 1) / 1e3


def main():
    parser = parser_of(__doc__, out="genima-study", repetitions=1)
    parser.add_argument("--clock-scale", type=float, default=50)
    study = Study(parser.parse_args())
    print("## Tables II and V: speedups on the Origin 2000\n")
    study.speedups()
    print("\n## Table III: 32 processors, nodes of 4\n")
    study.networks(32)
    print("\n## Table IV: 64 processors, nodes of 4\n")
    study.networks(64)
    print("\n## Table VI: 64 processors on the Origin 2000, nodes of 4, 8, 16\n")
    study.widths()
    print("\n## Table VII: the average cost of a change of access rights, microseconds\n")
    study.rights()


if __name__ == "__main__":
    main()
