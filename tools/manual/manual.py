"""Manual pages and completions of the commands, out of what their --help says: options are declared once, in the command.
Which of them have a variable of the environment is in the same table (src/base/settings.cpp), and the variables that have
no option are in docs/user/mgrun.md.

usage: manual.py man COMMAND OUTPUT                 the manual page of a command, in roff's macros man
       manual.py bash COMMAND OUTPUT                what completes it in bash
       manual.py zsh COMMAND OUTPUT                 and in zsh
       manual.py fish COMMAND OUTPUT                and in fish
       manual.py options COMMAND                    its options, one a line: for tests of the documentation

COMMAND is an executable; it and its subcommands are run with --help.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

# What a page says beyond --help, by command: one line on what it is, and which others to see.
ABOUT = {
    "mgrun": ("run a program on a cluster of shared-memory machines", "mgcc, mgtop, mgstudy, mgbench, mgtrace"),
    "mgcc": ("compile C programs for Multigrain, with access checks", "mgrun"),
    "mg++": ("compile C++ programs for Multigrain, with access checks", "mgcc, mgrun"),
    "mgtrace": ("record reference traces, and compute how good placement could be", "mgrun"),
    "mgbench": ("measure what each Multigrain primitive costs on this machine", "mgrun"),
    "mgtop": ("show what the processors of a run do, while it runs", "mgrun"),
    "mgstudy": ("run a program on a family of emulated machines, and report", "mgrun"),
}
SOURCE = Path(__file__).resolve().parents[2]
ENTRY = re.compile(r"^ {2,4}(?P<name>\S.*?)(?: {2,}(?P<text>\S.*))?$")
CHOICES = re.compile(r"\{([^{}]*)\}")


@dataclass
class Option:
    flags: list[str]
    value: str  # its placeholder; empty: a flag
    choices: list[str]
    text: str


@dataclass
class Section:
    title: str
    options: list[Option] = field(default_factory=list)


@dataclass
class Help:
    usage: str = ""
    prose: list[str] = field(default_factory=list)  # lines before the first and behind the last option
    sections: list[Section] = field(default_factory=list)
    subcommands: dict[str, str] = field(default_factory=dict)

    def options(self) -> list[Option]:
        return [option for section in self.sections for option in section.options]


def option_of(name: str, text: str) -> Option:
    """An entry such as "-n,--nodes N", "--protocol NAME:{mgs,hlrc}", "-p P, --procs P" or "--showme:compile"."""
    choices = CHOICES.search(name)
    words = [choices.group(1).split(",") if choices else []]
    bare = CHOICES.sub(" ", name)
    flags = []
    value = ""
    for part in re.split(r", ?(?=-)", bare):
        flag, _, placeholder = part.strip().partition(" ")
        if "=" in flag and not placeholder:
            flag, _, placeholder = flag.partition("=")
            flag += "="
        flags.append(flag)
        value = placeholder.strip() or value
    value = value.replace("REQUIRED", "").strip(" :")
    if not value and choices:
        value = "|".join(words[0])
    return Option(flags, value.split(":")[0].split("=")[0].strip(), words[0], text)


def parse(text: str) -> Help:
    out = Help()
    section: Section | None = None
    lists_commands = False
    last: Option | None = None
    command = ""
    before = ""
    for line in text.splitlines():
        starts_paragraph, before = not before.strip(), line
        if line.lower().startswith("usage:"):
            out.usage = line[6:].strip()
            section, last = None, None
        elif starts_paragraph and re.match(r"^\S.*:$", line):
            title = line.rstrip(":")
            lists_commands = title.lower() in ("subcommands", "positional arguments")
            section, last, command = Section(title), None, ""
            if title.lower().startswith("all options are"):  # mgcc
                out.prose.append(line)
            out.sections.append(section)
        elif (
            section is not None
            and (found := ENTRY.match(line))
            and ((found["name"].startswith("-")) or (lists_commands and re.match(r"^[a-z+]+$", found["name"])))
        ):
            if lists_commands:
                command, last = found["name"], None
                out.subcommands[command] = found["text"] or ""
            else:
                last = option_of(found["name"], found["text"] or "")
                section.options.append(last)
        elif last is not None and line.startswith("      "):
            # A row of a list keeps its line.
            last.text += ("\n" if re.search(r"\S {2,}\S", line) else " ") + line.strip()
            last.text = last.text.lstrip()
        elif command and line.startswith("      "):
            out.subcommands[command] = f"{out.subcommands[command]} {line.strip()}"
        elif section is not None and section.title in ("Positionals", "positional arguments") and line.startswith(" "):
            continue
        else:
            if line and not line.startswith(" "):
                section, last, command = None, None, ""
            out.prose.append(line)
    out.sections = [each for each in out.sections if each.options]
    return out


def help_of(command: str, *subcommand: str) -> Help:
    done = subprocess.run([command, *subcommand, "--help"], check=True, capture_output=True, text=True, timeout=300)
    return parse(done.stdout)


def subcommand_helps(command: str, own: Help) -> dict[str, Help]:
    """Those that have a --help of their own: mgtrace cc hands all options to the compiler."""
    return {name: help_of(command, name) for name in own.subcommands if name not in ("cc", "c++")}


# Manual pages.


def roff(text: str) -> str:
    """A line of text: nothing in it is a request or an escape of roff's."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("–", "\\(en")
    return "\\&" + text if text[:1] in (".", "'") else text


def roff_prose(lines: list[str]) -> list[str]:
    out: list[str] = []
    literal = False
    for number, line in enumerate([*lines, ""]):
        after = next((each for each in lines[number:] if each.strip()), "")
        if literal != after.startswith(" "):
            literal = not literal
            out.append(".nf" if literal else ".fi")
        if line.strip():
            out.append(roff(line.rstrip()))
        elif literal:
            out.append(".sp")
        elif out and out[-1] not in (".PP", ".fi", ".nf"):
            out.append(".PP")
    while out and out[-1] in (".PP", ".sp"):
        out.pop()
    return out


def roff_options(of: Help) -> list[str]:
    out = []
    for section in of.sections:
        if len(of.sections) > 1:
            out.append(f'.PP\n.B "{roff(section.title)}"')
        for option in section.options:
            flags = ", ".join(f"\\fB{roff(flag)}\\fR" for flag in option.flags)
            gap = "" if option.flags[-1].endswith("=") else " "
            out.append(".TP\n" + flags + (f"{gap}\\fI{roff(option.value)}\\fR" if option.value else ""))
            choices = f"One of {', '.join(option.choices)}." if option.choices else ""
            text = option.text.rstrip()
            if choices and text and not text.endswith("."):
                text += "."
            rows = f"{text} {choices}".strip().splitlines() or [""]
            out += "\n.br\n".join(roff(re.sub(" +", " ", row)) or "\\&" for row in rows).splitlines()
    return out


def settings() -> dict[str, str]:
    """The long option of each variable that has one, in the order of --help."""
    rows = re.findall(
        r'\{"(MULTIGRAIN_\w+)",[^{}]*?"(?:-\w,)?(--[-\w]+)"', (SOURCE / "src/base/settings.cpp").read_text()
    )
    return dict(rows)


def variables_without_option() -> dict[str, str]:
    """What each of them says."""
    rows = re.findall(
        r"^\| (`M[G_A-Z]+`(?:, `M[G_A-Z]+`)*) \| (.*) \|$",
        (SOURCE / "docs/user/mgrun.md").read_text(),
        flags=re.MULTILINE,
    )
    return {names.replace("`", ""): text.replace("`", "") for names, text in rows}


def roff_environment(name: str) -> list[str]:
    """Those of the settings are mgrun's, as are others whose text names no command."""
    of_options = settings() if name == "mgrun" else {}
    others = {
        variables: text
        for variables, text in variables_without_option().items()
        if name in ([word for word in text.split() if word in ABOUT] or ["mgrun"])
    }
    if not of_options and not others:
        return []
    out = [".SH ENVIRONMENT"]
    if of_options:
        out.append("An option counts more than its variable.")
    out += [f".TP\n\\fB{variable}\\fR\nWhat \\fB{roff(option)}\\fR says." for variable, option in of_options.items()]
    for variables, text in others.items():
        names = ", ".join(f"\\fB{variable}\\fR" for variable in variables.split(", "))
        out.append(f".TP\n{names}\n{roff(text[:1].upper() + text[1:])}.")
    return out


def man_page(command: str) -> str:
    name = Path(command).name
    own = help_of(command)
    what, others = ABOUT[name]
    version = subprocess.run(
        [str(Path(command).with_name("mgrun")), "--version"], check=True, capture_output=True, text=True, timeout=300
    ).stdout.split()[-1]
    usage = own.usage.removeprefix(name).strip()
    out = [
        f'.TH {name.upper()} 1 "" "Multigrain {version}" "Multigrain"',
        f".SH NAME\n{name} \\- {roff(what)}",
        f".SH SYNOPSIS\n.B {name}\n{roff(usage)}",
        ".SH DESCRIPTION",
        *roff_prose(own.prose),
        ".SH OPTIONS",
        *roff_options(own),
    ]
    for sub, of in subcommand_helps(command, own).items():
        out += [f'.SH "{name.upper()} {sub.upper()}"', *roff_prose(of.prose), *roff_options(of)]
    out += roff_environment(name)
    seen = ", ".join(f".BR {each} (1)" for each in others.split(", ")).replace(", .BR", " ,\n.BR")
    out += [".SH SEE ALSO", seen, ".PP", "The pages of the documentation beside the program, docs/README.md first."]
    return "\n".join(out) + "\n"


# Completions.


def words_of(of: Help) -> list[str]:
    return [flag for option in of.options() for flag in option.flags]


def bash_function(name: str, of: Help, first: list[str]) -> list[str]:
    """Lines of a case of the subcommand: completes the value of an option, or the names of options."""
    out = ['      case "$previous" in']
    for option in of.options():
        if option.choices:
            out.append(
                f'        {"|".join(option.flags)}) COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$word"));;'
            )
        elif option.value:
            out.append(
                f'        {"|".join(flag.rstrip("=") for flag in option.flags)}) COMPREPLY=($(compgen -f -- "$word"));;'
            )
    return [
        *out,
        "        *) if [[ $word == -* ]]; then",
        f'             COMPREPLY=($(compgen -W "{" ".join(words_of(of))}" -- "$word"))',
        "           else",
        f'             COMPREPLY=($(compgen -W "{" ".join(first)}" -- "$word") $(compgen -f -- "$word"))',
        "           fi;;",
        "      esac;;",
    ]


def bash_completion(command: str) -> str:
    name = Path(command).name
    own = help_of(command)
    subs = subcommand_helps(command, own)
    out = [
        f"# Completes {name} in bash; made by tools/manual/manual.py out of its --help.",
        f"_multigrain_{name}() {{",
        "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} subcommand=${COMP_WORDS[1]}",
        "  COMPREPLY=()",
        "  [[ $COMP_CWORD -gt 1 ]] || subcommand=",
        '  case "$subcommand" in',
    ]
    for sub, of in subs.items():
        out += [f"    {sub})", *bash_function(name, of, [])]
    out += ["    *)", *bash_function(name, own, list(own.subcommands)), "  esac", "}"]
    out.append(f"complete -o filenames -o bashdefault -F _multigrain_{name} {name}")
    return "\n".join(out) + "\n"


def zsh_word(text: str) -> str:
    text = text.splitlines()[0].split(";")[0] if text else ""
    return re.sub(r"['\[\]:\\]", " ", text).strip()


def zsh_arguments(of: Help) -> str:
    out = []
    for option in of.options():
        value = ""
        if option.value:
            value = f":{zsh_word(option.value)}:" + (f"({' '.join(option.choices)})" if option.choices else "_files")
        for flag in option.flags:
            equals = "" if flag.endswith("=") or not value else ("=" if flag.startswith("--") else "")
            out.append(f"    '{flag}{equals}[{zsh_word(option.text)}]{value}'")
    return " \\\n".join([*out, "    '*:file:_files'"])


def zsh_completion(command: str) -> str:
    name = Path(command).name
    own = help_of(command)
    subs = subcommand_helps(command, own)
    out = [f"#compdef {name}", f"# Completes {name} in zsh; made by tools/manual/manual.py out of its --help.", ""]
    if subs:
        out.append("if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then")
        described = " ".join(f"'{sub}:{zsh_word(text)}'" for sub, text in own.subcommands.items())
        out += [f"  local -a subcommands=({described})", "  _describe subcommand subcommands", "  return", "fi"]
        out.append('case "$words[2]" in')
        for sub, of in subs.items():
            out += [f"  {sub})", "  _arguments \\", zsh_arguments(of), "  return;;"]
        out.append("esac")
    out += ["_arguments \\", zsh_arguments(own)]
    return "\n".join(out) + "\n"


def fish_word(text: str) -> str:
    text = text.splitlines()[0].split(";")[0] if text else ""
    text += ")" * (text.count("(") - text.count(")"))  # of what was cut off
    return "'" + text.strip().replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_options(name: str, of: Help, condition: str) -> list[str]:
    """A line for each option; `condition` says where on the command line they are offered."""
    out = []
    for option in of.options():
        words = [f"complete -c {name}"]
        if condition:
            words.append(f"-n {fish_word(condition)}")
        for flag in option.flags:
            bare = flag.rstrip("=")
            if bare.startswith("--"):
                words.append(f"-l {bare[2:]}")
            else:
                words.append(f"-s {bare[1:]}" if len(bare) == 2 else f"-o {bare[1:]}")
        if option.choices:
            words.append(f"-x -a {fish_word(' '.join(option.choices))}")
        elif option.value:
            words.append("-r")
        words.append(f"-d {fish_word(option.text)}")
        out.append(" ".join(words))
    return out


def fish_completion(command: str) -> str:
    name = Path(command).name
    own = help_of(command)
    subs = subcommand_helps(command, own)
    out = [f"# Completes {name} in fish; made by tools/manual/manual.py out of its --help."]
    first = "__fish_use_subcommand" if subs else ""
    for sub, text in own.subcommands.items():
        out.append(f"complete -c {name} -n {first} -a {sub} -d {fish_word(text)}")
    out += fish_options(name, own, first)
    for sub, of in subs.items():
        out += fish_options(name, of, f"__fish_seen_subcommand_from {sub}")
    return "\n".join(out) + "\n"


def all_options(command: str) -> set[str]:
    own = help_of(command)
    return {flag for of in (own, *subcommand_helps(command, own).values()) for flag in words_of(of)}


def main(arguments: list[str]) -> int:
    makers = {"man": man_page, "bash": bash_completion, "zsh": zsh_completion, "fish": fish_completion}
    if len(arguments) == 2 and arguments[0] == "options":
        print("\n".join(sorted(all_options(arguments[1]))))
        return 0
    if len(arguments) != 3 or arguments[0] not in makers:
        print(__doc__, file=sys.stderr)
        return 2
    output = Path(arguments[2])
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(makers[arguments[0]](arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
