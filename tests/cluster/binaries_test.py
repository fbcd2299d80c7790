"""Programs as they are (mgrun --binary) on virtual hosts: they do what they do by themselves."""

import json
import os
import shutil
import signal
import subprocess
import unittest

from cluster import BIN, HOSTS, LIMIT_S, MARGIN_S, ClusterTest, close_hosts, eventually, open_hosts

PROGRAMS = f"{BIN}/tests/guest"

setUpModule = open_hosts
tearDownModule = close_hosts


def run(command, data=b"", **options):
    """The status, the output and the messages."""
    done = subprocess.run([*command], input=data, capture_output=True, timeout=600, check=False, **options)
    return done.returncode, done.stdout, done.stderr


class Binaries(ClusterTest):
    def hosted(self, hosts, *command):
        return HOSTS.mgrun(BIN, ["--hosts", hosts, "--binary", "--", *command])

    def same(self, hosts, *command, data=b"", **options):
        with self.subTest(hosts=hosts, command=command[:2]):
            alone = HOSTS["a"].command(command, directory=os.getcwd())
            self.assertEqual(run(self.hosted(hosts, *command), data, **options), run(alone, data, **options))

    def test_threads_on_every_host(self):
        for hosts in ("a,b", "a:2,b", "b,c,a"):
            self.same(hosts, f"{PROGRAMS}/threads")
        self.assert_clean()

    def test_programs_of_a_distribution(self):
        data = os.urandom(300_000) + b"again and again, " * 50_000
        for command in (("xz", "-T2", "--block-size=300000", "-1"), ("pigz", "-p4", "-n"), ("sort", "--parallel=4")):
            path = shutil.which(command[0])
            if path is not None:
                self.same("a,b", path, *command[1:], data=data)
        self.same("a,b", "/bin/sh", "-c", "ls / | sort -r | head -3; echo $(expr 3 + 4); cat | wc -c; exit 11", data=data)
        self.assert_clean()

    def test_the_environment_is_the_users(self):
        environment = dict(os.environ, LD_BIND_NOW="1", MALLOC_ARENA_MAX="3", MULTIGRAIN_TEST_SEED="5", OTHER="a b\nc")
        _, output, _ = run(self.hosted("b,a", "/usr/bin/env", "-0"), env=environment)
        found = set(output.split(b"\0"))
        for name in ("LD_BIND_NOW", "MALLOC_ARENA_MAX", "MULTIGRAIN_TEST_SEED", "OTHER", "HOME"):
            self.assertIn(f"{name}={environment[name]}".encode(), found)
        self.assertFalse([one for one in found if one.startswith((b"MULTIGRAIN_NODE=", b"MULTIGRAIN_WIREUP", b"SSH_"))])

    def test_threads_come_home_to_what_processes_share(self):
        with open(f"{self.folder}/file", "wb") as file:
            file.write(bytes(4096))
        # Children and threads change the file, each kind of them at its own place.
        program = (
            "import mmap, os, sys, threading\n"
            "f = open(sys.argv[1], 'r+b')\n"
            "m = mmap.mmap(f.fileno(), 4096)\n"
            "def change(at): m[at] = at + 1\n"
            "threads = [threading.Thread(target=change, args=(i,)) for i in range(4)]\n"
            "[t.start() for t in threads]\n"
            "[t.join() for t in threads]\n"
            "for i in range(4, 8):\n"
            "    if os.fork() == 0:\n"
            "        change(i)\n"
            "        os._exit(0)\n"
            "    os.wait()\n"
            "print(list(m[:9]))\n"
        )
        python = shutil.which("python3", path="/usr/bin")
        if python is None:
            self.skipTest("there is no python3 in /usr/bin")
        status, output, messages = run(self.hosted("a,b", python, "-c", program, f"{self.folder}/file"))
        self.assertEqual((status, output, messages), (0, b"[1, 2, 3, 4, 5, 6, 7, 8, 0]\n", b""))
        with open(f"{self.folder}/file", "rb") as file:
            self.assertEqual(file.read(9), bytes([1, 2, 3, 4, 5, 6, 7, 8, 0]))
        for command in ((f"{PROGRAMS}/comes_home", "2"), (f"{PROGRAMS}/segments", "2"), (f"{PROGRAMS}/families", "1")):
            with self.subTest(command=command):
                self.assertEqual(run(self.hosted("a,b", *command)), run(command))

    def test_files_that_each_host_reads_by_itself(self):
        inside, outside = f"{self.folder}/inside", f"{self.folder}/outside"
        os.mkdir(inside)
        os.mkdir(outside)
        words = ("read", "pread", "dup", "reopen", "race", "fork", "names", "tables", "many")
        program = (f"{PROGRAMS}/local_files", inside, outside, "1", *words)
        expected = "".join(f"{word} is done\n" for word in words).encode()
        done = run(HOSTS.mgrun(BIN, ["--hosts", "a,b", "--local-files", inside, "--binary", "--", *program]))
        self.assertEqual(done, (0, expected, b""))
        # On host b the folder has other files, and then none.
        host = HOSTS["b"]
        for other in ("other", None):
            copy = f"{self.folder}/copy"
            os.makedirs(copy, exist_ok=True)
            if other is not None:
                with open(f"{copy}/records", "w", encoding="ascii") as file:
                    file.write(other)
            host.run(["mount", "--bind", copy, inside], check=True)
            status, output, messages = run(
                HOSTS.mgrun(BIN, ["--hosts", "a,b", "--local-files", inside, "--binary", "--", *program])
            )
            host.run(["umount", inside], check=True)
            shutil.rmtree(copy)
            self.assertEqual((status, output), (0, expected), messages)
            self.assertEqual(messages.count(b"(--local-files)"), 1, messages)
            self.assertEqual(len(messages.splitlines()), 1, messages)
        status, output, messages = run(
            HOSTS.mgrun(BIN, ["--hosts", "a,b", "--local-files", "/nonexistent", "--binary", "--", "/bin/echo"])
        )
        self.assertEqual((status, output), (2, b""), messages)
        self.assertIn(b"--local-files: '/nonexistent': No such file or directory", messages)
        self.assert_clean()

    def test_threads_of_all_hosts_have_rows_in_the_statistics(self):
        for how, status in (("exit_group", 8), ("term", -signal.SIGTERM), ("exec", 9)):
            with self.subTest(how=how):
                command = ["--stats", "json", "--hosts", "a,b", "--binary", "--", f"{PROGRAMS}/ends", how, "1"]
                found, output, messages = run(HOSTS.mgrun(BIN, command))
                self.assertIn(found, (status, 128 - status), messages)
                self.assertTrue(output.startswith(b"300\n"), output)
                statistics = json.loads(messages)
                rows = [[row["kind"] for row in node["threads"]].count("thread") for node in statistics["nodes"]]
                self.assertEqual(rows, [2, 2])
                self.assertEqual({row["thread"] > 0 for row in statistics["nodes"][1]["threads"]}, {True})
        self.assert_clean()

    def test_a_program_that_is_not_there(self):
        status, _, messages = run(self.hosted("a,b", "/nonexistent"))
        self.assertEqual(status, 127, messages)

    def test_the_signal_that_ends_it_ends_mgrun(self):
        status, _, _ = run(HOSTS.mgrun(BIN, ["--quiet", "--hosts", "a,b", "--binary", "--", "/bin/sh", "-c", "kill -KILL $$"]))
        self.assertIn(status, (-signal.SIGKILL, 128 + signal.SIGKILL))

    def test_a_host_whose_node_is_killed_ends_the_run(self):
        # The shell reads by itself: what it executed in its place would go on without the nodes.
        with subprocess.Popen(
            self.hosted("a,b", "/bin/sh", "-c", "echo ready; while read line; do :; done"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            self.assertEqual(process.stdout.readline(), b"ready\n")
            [node] = HOSTS["b"].find("mghost-node")
            os.kill(node, signal.SIGKILL)
            self.assertTrue(eventually(lambda: process.poll() is not None, LIMIT_S + MARGIN_S))
            self.assertNotEqual(process.returncode, 0)
            self.assertIn(b"node 1", process.stderr.read())
            process.stdin.close()
        self.assert_clean()


if __name__ == "__main__":
    unittest.main()
