"""The report of a study: the MGS paper's figures (3, 6 to 20) and the tables of GeNIMA's study of node width, for one program."""

from __future__ import annotations

from multigrain.study.conditions import CLOCKS, is_exact, repetition
from multigrain.study.figures import against, duration, faster, machine_words, percent, percent_range, slower
from multigrain.study.page import Block, Section, Table, number, page, size, text
from multigrain.study.studies import latency_text
from multigrain.study.study_curves import CurveSections
from multigrain.study.study_processors import ProcessorSections
from multigrain.study.study_profile import ProfileSections
from multigrain.study.study_view import GRAIN_TEXT, KINDS, Json
from multigrain.study.verdicts import NOISY, SHORTEST_NS, doubt, relative_spread


def machine_html(machine: Json) -> str:
    words = f" ({text(machine['what'])})" if machine["what"] else ""
    return f"<code>{text(machine['name'])}</code>{words}"


class StudyReport(ProfileSections, CurveSections, ProcessorSections):
    def html(self) -> str:
        sections = [
            Section("short", "In short", self.in_short()),
            Section("failures", "What failed", self.failures()),
            *(
                [Section("latency", "Execution time against latency", self.latency())]
                if self.kind == "latency"
                else [Section("profile", "Performance profile", self.profile())]
            ),
            *([Section("width", "Shares of time by node width", self.width())] if self.kind == "width" else []),
            Section("processors", "Processor by processor", self.by_processor()),
            Section("counters", "What happened how often", self.counters()),
            Section("method", "Method", self.method()),
        ]
        return page(
            f"{KINDS[self.kind]} {self.study['title']}", self.lead(), [each for each in sections if each.blocks]
        )

    def lead(self) -> str:
        network, here = self.study["network"], self.study["machine"]
        emulated = self.study.get("emulated", [])
        shown = f"<code>{text(network['given'])}</code>" if network["given"] else ""
        if network.get("of_machine"):
            shown = f"the emulated machine's: {shown}" if shown else "the emulated machine's"
        if network["figures"] != network["given"]:
            shown += f": {text(network['figures'])}"
        if network["what"]:
            shown += f" ({text(network['what'])})"
        if self.kind == "latency":
            shown += ", with its latency varied"
        # Of the clock, the machine and the network there is a line each.
        options = [each.removeprefix("--") for each in self.study["options"]]
        options = [each for each in options if each.split()[0] not in ("clock", "machine", "net")]
        facts = [
            (
                "Program",
                "<br>".join(
                    f"<code>{text(' '.join([each['path'], *each['arguments']]))}</code>"
                    for each in self.study["programs"]
                ),
            ),
            ("Machines", f"{self.processors} processors in nodes of {', '.join(map(str, self.study['node_sizes']))}"),
            *([("Emulated machine", "<br>".join(map(machine_html, emulated)))] if emulated else []),
            ("Network", shown),
            ("Options", ", ".join(f"<code>--{text(each)}</code>" for each in options) or "none"),
            (
                "Times",
                ", ".join(filter(None, (CLOCKS[self.study["clock"]], repetition(self.study) or "of one run"))),
            ),
            (
                "Measured on",
                f"{text(here['processor'])}, {here['cores']} core{'s' if here['cores'] != 1 else ''}, {text(here['kernel'])}"
                f"; {text(self.study['created'].replace('T', ' ').replace('+00:00', ' UTC'))}",
            ),
        ]
        out = '<dl class="facts">' + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts) + "</dl>"
        if self.study["clock"] == "wall" and self.processors > here["cores"]:
            out += (
                f'<p class="warn">{self.processors} processors took turns on {here["cores"]} core{"s" if here["cores"] != 1 else ""} of this '
                "machine: these times compare machines only roughly. The virtual clock does not depend on that.</p>"
            )
        if self.study["clock"] == "counted" and not is_exact(self.study):
            out += (
                f'<p class="warn">These numbers are {text(repetition(self.study))}. What lost its turn is told by mgrun '
                "at the end of a run.</p>"
            )
        return out

    def in_short(self) -> list[Block]:
        if self.kind == "latency":
            return [*self.doubts(), *self.latency_in_short()]
        out: list[Block] = self.doubts()
        rows = []
        for label in self.series:
            own = self.metrics[label]
            clustered = [
                point for point in self.family if point["series"] == label and point["node_size"] < self.processors
            ]
            best = min(clustered, key=lambda point: point["elapsed_ns"], default=None)
            alone = own["sequential_ns"]
            rows.append(
                [
                    label,
                    percent(own["breakup_penalty"]),
                    percent_range(own["breakup_penalty_range"]),
                    percent(own["multigrain_potential"]),
                    percent_range(own["multigrain_potential_range"]),
                    own["grain"] or "–",
                    f"{self.nodes_of(best)}: {duration(best['elapsed_ns'])}" if best else "–",
                    number(alone / best["elapsed_ns"], 3) if best and alone else "–",
                ]
            )
            if not self.several:
                out.append(self.cards(own, best, alone))
        if self.several:
            spreads = any(row[2] or row[4] for row in rows)
            columns = [
                "",
                "breakup penalty",
                "its range",
                "multigrain potential",
                "its range",
                "class",
                "fastest cluster",
                "its speedup",
            ]
            keep = [i for i in range(len(columns)) if spreads or i not in (2, 4)]
            letters = [[f"{self.letters[row[0]]}: {row[0]}", *row[1:]] for row in rows]
            out.append(
                Table(
                    [columns[i] for i in keep],
                    [[row[i] for i in keep] for row in letters],
                    right=[keep.index(i) for i in (1, 2, 3, 4, 7) if i in keep],
                    wide=[0],
                )
            )
        return out

    def doubts(self) -> list[Block]:
        """What of the times means little, in a sentence for each reason."""
        found: dict[str, list[str]] = {}
        for point in self.measured:
            why = doubt(point, self.study["clock"])
            what = "one processor" if point["role"] == "sequential" else self.nodes_of(point)
            if self.several:
                what = f"{point['series']}, {what}"
            if point["latency_ns"] is not None:
                what += f", latency {latency_text(point['latency_ns'])}"
            if why == "too short":
                found.setdefault(why, []).append(f"{what}: {duration(point['elapsed_ns'])}")
            elif why:
                found.setdefault(why, []).append(f"{what}: {percent(relative_spread(point), 2)}")
        words = {
            "too short": f"Too short to mean much (below {duration(SHORTEST_NS)}), since starting threads and what else this machine "
            "does take as long; a larger problem would tell more",
            "too noisy": f"Too noisy to mean much (the fastest and the slowest run differ by more than {percent(NOISY)} of the "
            "median); more runs, or a machine with nothing else to do, would tell more",
        }
        return [f'<p class="warn"><b>{words[why]}.</b> {text("; ".join(which))}.</p>' for why, which in found.items()]

    def nodes_of(self, point: Json) -> str:
        return machine_words(self.processors, point["node_size"])

    def cards(self, own: Json, best: Json | None, alone: float | None) -> str:
        def card(name: str, value: str, words: str) -> str:
            return f'<div class="card"><dt>{name}</dt><dd><b>{value}</b><span>{words}</span></dd></div>'

        half = self.processors // 2
        spread = {
            name: f" ({each} over the runs)" if (each := percent_range(own[f"{name}_range"])) else ""
            for name in ("breakup_penalty", "multigrain_potential")
        }
        # Where the number does not say it.
        longer, shorter = (
            "" if (own[name] or 0) >= 1 else word
            for name, word in (("breakup_penalty", "longer"), ("multigrain_potential", "faster"))
        )
        out = [
            card(
                "Breakup penalty",
                slower(own["breakup_penalty"]),
                f"{longer} on two nodes of {half} than on one of {self.processors}" + spread["breakup_penalty"],
            ),
            card(
                "Multigrain potential",
                faster(own["multigrain_potential"]),
                f"{shorter} in nodes of {half} than in nodes of one processor" + spread["multigrain_potential"],
            ),
            card(
                "Class",
                own["grain"] or "not known",
                text(own["reason"][:1].upper() + own["reason"][1:])
                + "."
                + (f" {GRAIN_TEXT[own['grain']]}" if own["grain"] in GRAIN_TEXT else ""),
            ),
        ]
        if best:
            out.append(
                card(
                    "Fastest cluster",
                    self.nodes_of(best),
                    duration(best["elapsed_ns"]) + (f", {against(alone, best['elapsed_ns'])}" if alone else ""),
                )
            )
        return '<dl class="cards">' + "".join(out) + "</dl>"

    def failures(self) -> list[Block]:
        out: list[Block] = []
        for point in self.study["points"]:
            for failure in point["failures"]:
                where = "one processor" if point["role"] == "sequential" else self.nodes_of(point)
                if point["latency_ns"] is not None:
                    where += f", latency {latency_text(point['latency_ns'])}"
                if self.several:
                    where = f"{point['series']}: {where}"
                out.append(
                    f'<p class="warn"><b>{text(where)}:</b> {text(failure["problem"])}</p><code class="code">{text(failure["command"])}\n\n'
                    f"{text(failure['output'].strip())}</code>"
                )
        if out:
            out.insert(
                0, "<p>These machines have no result, or fewer runs than were asked for. The others are shown.</p>"
            )
        return out

    def method(self) -> list[Block]:
        half = self.processors // 2
        page_size = next(
            (
                size(int(option.split()[-1]))
                for option in self.study["options"]
                if "page-size" in option and option.split()[-1].isdigit()
            ),
            None,
        )
        out: list[Block] = []
        if self.kind != "latency":
            out.append(
                f"<p>The <b>breakup penalty</b> is the increase of execution time from C = {self.processors} to C = {half}, as a part of the former. The "
                f"<b>multigrain potential</b> is the difference between C = 1 and C = {half}, as a part of the latter (MGS paper, section 2.3). A program is "
                "coarse-grain if both are below 50 %, fine-grain if the breakup penalty is not and no cluster is twice as fast as one processor, and otherwise "
                "medium-grain (after section 5.3, which gives no bounds).</p>"
            )
        network = self.study["network"]
        for each in self.study.get("emulated", []):
            out.append(
                f"<p>{text(each['name'])} is described in {text(each['given'])}"
                + (f" (SHA-256 {each['sha256'][:16]}…)" if each["sha256"] else "")
                + (f"; source of its figures: {text(each['source'])}" if each["source"] else "")
                + ".</p>"
            )
        if network["source"]:
            out.append(f"<p>Source of the network's figures: {text(network['source'])}.</p>")
        if page_size:
            out.append(f"<p>Pages of {page_size}.</p>")
        out.append(
            f'<p>The command to repeat this (results that are kept are not measured again; --fresh does):</p><code class="code">{text(self.study["command"])}</code>'
        )
        rows = [
            ["one processor" if point["role"] == "sequential" else self.nodes_of(point), point["command"]]
            for point in self.study["points"]
        ]
        out.append(
            "<details><summary>The runs</summary>"
            + Table(
                ["machine", "command"],
                [[name, f"<code>{text(command)}</code>"] for name, command in rows],
                html_columns=[1],
                wide=[1],
            ).html()
            + "</details>"
        )
        programs = "; ".join(
            f"{text(each['path'])} (SHA-256 {each['sha256'][:16]}…)" for each in self.study["programs"]
        )
        out.append(f'<p class="fine">{programs}</p>')
        return out
