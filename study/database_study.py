#!/usr/bin/env python3
"""Runs Debian's PostgreSQL under mgrun --binary and by itself, and prints the tables of docs/studies/database.md.

usage: database_study.py [--bin DIR] [--nodes N,N,...] [--seconds S] [--repeat N] [--doc FILE] [SECTION...]
       database_study.py --source DIR regression isolation
       database_study.py --transactions N sums

Each server has a cluster of databases of its own in a temporary folder, and is reached by a socket there. Sections:

  regression   PostgreSQL's own tests (make installcheck), of its source (--source, apt-get source postgresql-15) in which configure
               and `make -C src/backend generated-headers && make -C src/test/regress && make -C src/test/isolation` have been run:
               natively and on each number of nodes, and what differs
  isolation    the same for the tests of concurrent sessions
  throughput   pgbench, transactions like TPC-B's and queries alone: transactions a second, and processor time of the server
  connections  pgbench with a connection for each transaction, so that each takes a fork
  query        two queries like TPC-H's Q1 and Q6 with 0 to 3 parallel workers
  sums         that the sums of all balances are right after --transactions, after kill -9 of a process of the server while clients are
               at work, and after kill -9 of a node; exits with status 1 if they are not

Sections that measure take turns between the ways to run, and print medians. Without a name: throughput, connections and query."""

import argparse
import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import postgres
from paper_study import head, print_sections, row

CLIENTS = (1, 2, 4, 8, 16)
WORKERS = (0, 1, 2, 3)
SETTINGS = ("fsync=off", "shared_buffers=128MB", "max_connections=60")
SECTIONS = ("regression", "isolation", "throughput", "connections", "query", "sums")
MEASURED = ("throughput", "connections", "query")

LINES = """
create unlogged table lineitem as select
  i as l_orderkey, (1 + i % 50)::numeric(12,2) as l_quantity, (900 + (i * 7919) % 104000)::numeric(12,2) as l_extendedprice,
  ((i * 31) % 11 / 100.0)::numeric(12,2) as l_discount, ((i * 17) % 9 / 100.0)::numeric(12,2) as l_tax,
  substr('ANR', 1 + (i * 13 % 3)::int, 1)::char(1) as l_returnflag, substr('OF', 1 + (i * 29 % 2)::int, 1)::char(1) as l_linestatus,
  date '1992-01-02' + (i * 104729 % 2526)::int as l_shipdate
from generate_series(1::bigint, {rows}) as i;
analyze lineitem;
"""
Q1 = """
select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 - l_discount)),
  sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
from lineitem where l_shipdate <= date '1998-12-01' - interval '90' day
group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus"""
Q6 = """
select sum(l_extendedprice * l_discount) from lineitem
where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24"""
# Workers are taken whatever the planner thinks of them; JIT compilation would be most of a short query.
PARALLEL = (
    "set jit = off; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0;"
    "set max_parallel_workers_per_gather = {workers};"
)


def descendants_and(pid):
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError), open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
            found += [int(child) for child in file.read().split()]
    return found


def processor_seconds(pid):
    """User and system time of a process, of those below it, and of those that were and have been waited for."""
    ticks = 0
    for one in descendants_and(pid):
        with contextlib.suppress(OSError), open(f"/proc/{one}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


class Study:
    def __init__(self, options):
        self.options = options
        self.ways = ["natively", *(f"{nodes} node{'s' if nodes != 1 else ''}" for nodes in options.nodes)]
        self.is_right = True

    def prefix(self, way):
        if way == "natively":
            return ()
        return (os.path.join(self.options.bin, "mgrun"), "--nodes", way.split()[0], "--binary", "--")

    @contextlib.contextmanager
    def cluster(self):
        """A folder with a cluster of databases; nothing of it is left behind."""
        folder = tempfile.mkdtemp(prefix="mg-database-")
        try:
            done = postgres.make_cluster(folder, "--locale=C", "--encoding=UTF8")
            if done.returncode != 0:
                sys.exit(f"database_study.py: initdb: {done.stderr}")
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def server(self, way, folder=None):
        with self.cluster() if folder is None else contextlib.nullcontext(folder) as place:
            server = postgres.Server(place, *self.prefix(way), settings=SETTINGS)
            try:
                yield server
            finally:
                if server.process.poll() is None:
                    server.stop()

    @contextlib.contextmanager
    def servers(self):
        """A server for each way to run, at a time."""
        with contextlib.ExitStack() as stack:
            yield {way: stack.enter_context(self.server(way)) for way in self.ways}

    def client(self, server, name, *arguments, seconds=postgres.PATIENCE_S):
        done = postgres.run_client(server.folder, name, *arguments, "postgres", seconds=seconds)
        if done.returncode != 0:
            sys.exit(f"database_study.py: {name} {' '.join(arguments)}: {done.stderr}\n{server.log()[-4000:]}")
        return done.stdout

    def fill(self, server):
        self.client(server, "pgbench", "-q", "-i", "-s", str(self.options.scale))

    # --- PostgreSQL's own tests

    def own_tests(self, kind, program, schedule):
        """The results of PostgreSQL's tests of this kind for each way to run, and a row for each test that differs in one."""
        source = os.path.abspath(self.options.source)
        inputs = f"{source}/src/test/{kind}"
        if not os.path.exists(f"{inputs}/{program}"):
            sys.exit(f"database_study.py: there is no {inputs}/{program}; --help says how it is made")
        results = {}
        for way in self.ways:
            with self.server(way) as server:
                # The server writes there, too.
                output = f"{server.folder}/output"
                os.mkdir(output)
                os.chmod(output, 0o777)
                command = [
                    f"{inputs}/{program}", f"--inputdir={inputs}", f"--outputdir={output}", f"--bindir={postgres.FOLDERS[-1]}",
                    f"--dlpath={source}/src/test/regress", "--max-concurrent-tests=20", f"--schedule={inputs}/{schedule}",
                    f"--host={server.folder}", f"--user={postgres.user_name()}",
                ]  # fmt: skip
                begun = time.monotonic()
                done = subprocess.run(
                    command, cwd=output, capture_output=True, text=True, check=False, **postgres.user()
                )
                seconds = time.monotonic() - begun
                results[way] = dict(
                    re.findall(
                        r"^(?:test|    )?\s*(\S+)\s+\.\.\. (ok|FAILED|failed \(ignored\))", done.stdout, re.MULTILINE
                    )
                )
                if not results[way]:
                    sys.exit(f"database_study.py: {program}: {done.stdout}{done.stderr}")
                if self.options.keep:
                    kept = os.path.join(self.options.keep, f"{kind}-{way.replace(' ', '-')}")
                    shutil.copytree(output, kept, dirs_exist_ok=True)
                    shutil.copy(f"{server.folder}/log", kept)
                failed = [name for name, result in results[way].items() if result != "ok"]
                row(way, str(len(results[way])), str(len(failed)), f"{seconds:.0f}", ", ".join(failed) or "none")
        if any(results[way] != results["natively"] for way in self.ways):
            self.is_right = False

    def regression(self):
        """PostgreSQL's regression tests"""
        head("run", ("tests", "fail", "s", "which"))
        self.own_tests("regress", "pg_regress", "parallel_schedule")

    def isolation(self):
        """PostgreSQL's tests of concurrent sessions"""
        head("run", ("tests", "fail", "s", "which"))
        self.own_tests("isolation", "pg_isolation_regress", "isolation_schedule")

    # --- Measurements

    def bench(self, server, *arguments):
        """Transactions a second, and microseconds of the server's processors for each."""
        before = processor_seconds(server.process.pid)
        output = self.client(server, "pgbench", "-n", "-T", str(self.options.seconds), *arguments)
        # The processes of the server that have ended are in its account once it has waited for them.
        while int(server.ask("select count(*) from pg_stat_activity where application_name = 'pgbench'")) > 0:
            time.sleep(0.05)
        time.sleep(0.2)
        spent = processor_seconds(server.process.pid) - before
        done = int(re.search(r"transactions actually processed: (\d+)", output)[1])
        return float(re.search(r"tps = ([\d.]+)", output)[1]), spent * 1e6 / done

    def bench_in_turn(self, servers, *arguments):
        """For each way, the medians of what bench() says."""
        found = {way: [] for way in servers}
        for _ in range(self.options.repeat):
            for way, server in servers.items():
                found[way].append(self.bench(server, *arguments))
        return {way: [statistics.median(values) for values in zip(*runs)] for way, runs in found.items()}

    def print_bench(self, servers, counts, *arguments):
        others = [way for way in self.ways if way != "natively"]
        head(
            "clients",
            [
                *(f"{way}, tps" for way in self.ways),
                *(f"{way}, us" for way in self.ways),
                *(f"{way}, of native" for way in others),
            ],
        )
        for clients in counts:
            found = self.bench_in_turn(servers, "-c", str(clients), "-j", str(min(clients, 2)), *arguments)
            row(
                str(clients), *(f"{found[way][0]:.0f}" for way in self.ways), *(f"{found[way][1]:.0f}" for way in self.ways),
                *(f"{found[way][0] / found['natively'][0]:.2f}" for way in others),
            )  # fmt: skip

    def throughput(self):
        """pgbench: transactions a second (tps), and us of the server's processors for each"""
        with self.servers() as servers:
            for server in servers.values():
                self.fill(server)
            for title, arguments in (("Transactions like TPC-B's", ()), ("Queries alone (`pgbench -S`)", ("-S",))):
                print(f"\n{title}:\n")
                self.print_bench(servers, CLIENTS, *arguments)

    def connections(self):
        """A connection for each transaction (`pgbench -C -S`): each takes a fork"""
        with self.servers() as servers:
            for server in servers.values():
                self.fill(server)
            self.print_bench(servers, (1, 4), "-C", "-S")

    def query(self):
        """Queries like TPC-H's Q1 and Q6 with parallel workers, ms"""
        with self.servers() as servers:
            for server in servers.values():
                server.ask(LINES.format(rows=self.options.rows))
            answers = {}
            for name, text in (("Q1", Q1), ("Q6", Q6)):
                print(f"\n{name}:\n")
                head("workers", [*self.ways, *(f"{way}, speedup" for way in self.ways)])
                alone = {}
                for workers in WORKERS:
                    times = {way: [] for way in self.ways}
                    for _ in range(self.options.repeat):
                        for way, server in servers.items():
                            # The first is there so that the memory is warm, and the answer compared.
                            answers.setdefault(name, server.ask(PARALLEL.format(workers=workers) + text))
                            if server.ask(PARALLEL.format(workers=workers) + text) != answers[name]:
                                sys.exit(f"database_study.py: {name} has another answer {way}, {workers} workers")
                            explained = server.ask(
                                f"{PARALLEL.format(workers=workers)} explain (analyze, timing off) {text}"
                            )
                            launched = re.search(r"Workers Launched: (\d+)", explained)
                            if workers and (not launched or int(launched[1]) != workers):
                                sys.exit(f"database_study.py: {name} did not get {workers} workers {way}: {explained}")
                            times[way].append(float(re.search(r"Execution Time: ([\d.]+) ms", explained)[1]))
                    found = {way: statistics.median(values) for way, values in times.items()}
                    alone = alone or found
                    row(
                        str(workers),
                        *(f"{found[way]:.0f}" for way in self.ways),
                        *(f"{alone[way] / found[way]:.2f}" for way in self.ways),
                    )

    # --- What stays

    def judge(self, *cells, right):
        row(*cells, "right" if right else "WRONG")
        self.is_right = self.is_right and right

    def sums(self):
        """The sums of balances"""
        head("run", ("what happens", "transactions that clients know of", "in the history", "sums"), 1)
        clients = 8
        for way in self.ways:
            with self.cluster() as folder:
                with self.server(way, folder) as server:
                    self.fill(server)
                    each = self.options.transactions // clients
                    self.client(server, "pgbench", "-n", "-c", str(clients), "-t", str(each), seconds=36000)
                    count = int(server.ask(postgres.COUNT))
                    right = server.ask(postgres.SUMS) == "0|0|0" and count == each * clients
                    self.judge(way, "nothing", str(each * clients), str(count), right=right)
                    self.kill_backend(way, server, clients)
                    if way not in ("natively", "1 node"):
                        self.kill_node(way, server, clients)

    def kill(self, server, clients, victim):
        """Kills a process while clients are at work, and returns how many transactions they know to be committed, with those from before."""
        before = int(server.ask(postgres.COUNT))
        bench = postgres.start_client(server.folder, "pgbench", "-n", "-c", str(clients), "-T", "60", "postgres")
        while int(server.ask(postgres.COUNT)) < before + 500:
            time.sleep(0.05)
        os.kill(victim(), signal.SIGKILL)
        output, _ = bench.communicate(timeout=postgres.PATIENCE_S)
        return before + int(re.search(r"transactions actually processed: (\d+)", output)[1])

    def judge_recovered(self, way, what, server, committed, clients):
        count = int(server.ask(postgres.COUNT))
        right = server.ask(postgres.SUMS) == "0|0|0" and committed <= count <= committed + clients
        self.judge(way, what, str(committed), str(count), right=right)

    def kill_backend(self, way, server, clients):
        one = "select pid from pg_stat_activity where application_name = 'pgbench' limit 1"
        committed = self.kill(server, clients, lambda: int(server.ask(one)))
        while not server.answers():
            time.sleep(0.1)
        self.judge_recovered(way, "`kill -9` of a backend", server, committed, clients)

    def kill_node(self, way, server, clients):
        committed = self.kill(server, clients, lambda: postgres.other_nodes(server.first())[0])
        server.process.wait(postgres.PATIENCE_S)
        with self.server("natively", server.folder) as alone:
            self.judge_recovered(
                way, "`kill -9` of a node, then a server without Multigrain", alone, committed, clients
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("sections", metavar="SECTION", nargs="*", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--bin", default="build/bin", type=os.path.abspath, help="where mgrun is (default: build/bin)")
    parser.add_argument("--nodes", default="1,2,4", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--source", default="postgresql-15", help="PostgreSQL's source, built as said above")
    parser.add_argument("--keep", metavar="DIR", help="where to leave what the tests of PostgreSQL wrote")
    parser.add_argument("--seconds", type=int, default=10, help="of each run of pgbench")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, of which the median is printed")
    parser.add_argument("--scale", type=int, default=10, help="pgbench's branches")
    parser.add_argument(
        "--rows", type=int, default=600000, help="of the table of query; TPC-H has 6 million at scale 1"
    )
    parser.add_argument("--transactions", type=int, default=100000)
    parser.add_argument("--doc", metavar="FILE", help="the page whose tables to replace")
    options = parser.parse_args()
    for section in options.sections:
        if section not in SECTIONS:
            parser.error(f"there is no section '{section}'; the sections are {', '.join(SECTIONS)}")
    if not postgres.FOLDERS:
        sys.exit("database_study.py: there is no PostgreSQL in /usr/lib/postgresql")
    study = Study(options)
    print_sections(study, options.sections or MEASURED, options.doc)
    return 0 if study.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
