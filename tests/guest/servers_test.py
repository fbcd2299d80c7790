"""Programs of many processes that others wrote, under mgrun --binary: web servers with workers, and make."""

import concurrent.futures
import grp
import http.client
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

BIN = os.path.abspath(os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin"))
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
NGINX = shutil.which("nginx", path=PATH)
APACHE = shutil.which("apache2", path=PATH)
# The test gives up after this only where it would hang otherwise.
PATIENCE_S = float(os.environ.get("MULTIGRAIN_TEST_PATIENCE", "300"))
RUNS = (("--nodes", "1"), ("--nodes", "2"))
REQUESTS = 200

NGINX_SETTINGS = """
daemon off; master_process on; worker_processes 3; pid {folder}/pid; error_log {folder}/log; {user}
events {{ worker_connections 64; }}
http {{
  access_log off; sendfile on; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  limit_req_zone $uri zone=shared:64k rate=100000r/s;
  server {{ listen 127.0.0.1:{port}; root {folder}/files; limit_req zone=shared burst=1000; }}
}}
"""
# The mutex of prefork is one that processes share, and robust; the scoreboard is shared memory.
APACHE_SETTINGS = """
ServerRoot {folder}
ServerName localhost
Listen 127.0.0.1:{port}
Listen 127.0.0.1:{other}
PidFile {folder}/pid
ErrorLog {folder}/log
Mutex {mutex}
LoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so
LoadModule authz_core_module {modules}/mod_authz_core.so
StartServers 3
MinSpareServers 2
MaxSpareServers 5
MaxRequestWorkers 8
MaxConnectionsPerChild 20
DocumentRoot {folder}/files
{user}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def children_of(process):
    with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def waits(condition):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def processes_of_session(session):
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.getsid(int(entry)) == session:
                found.append(int(entry))
        except ProcessLookupError:
            pass
    return found


class Servers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mg-servers-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        os.mkdir(f"{self.folder}/files")
        os.chmod(self.folder, 0o755)
        self.contents = {f"/{size}": os.urandom(size) for size in (1, 5000, 300_000)}
        for name, content in self.contents.items():
            Path(f"{self.folder}/files{name}").write_bytes(content)
        # A server of root's gives its rights away in its workers.
        nobody = pwd.getpwnam("nobody")
        self.user = (nobody.pw_name, grp.getgrgid(nobody.pw_gid).gr_name) if os.geteuid() == 0 else None

    def get(self, port, name):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            connection.request("GET", name)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def answers(self, port):
        try:
            return self.get(port, "/1")[0] == 200
        except OSError:
            return False

    def use(self, port):
        names = sorted(self.contents)
        with concurrent.futures.ThreadPoolExecutor(6) as clients:
            found = list(clients.map(lambda i: self.get(port, names[i % len(names)]), range(REQUESTS)))
        for i, (status, content) in enumerate(found):
            self.assertEqual((status, content == self.contents[names[i % len(names)]]), (200, True))

    def start(self, options, *command):
        with open(f"{self.folder}/output", "ab") as output:
            process = subprocess.Popen(
                (f"{BIN}/mgrun", *options, "--binary", "--", *command), stdout=output, stderr=output, cwd=self.folder, start_new_session=True
            )  # fmt: skip
        self.addCleanup(process.kill)
        return process

    def first(self):
        return int(Path(f"{self.folder}/pid").read_text(encoding="ascii"))

    def said(self):
        texts = [Path(f"{self.folder}/{name}") for name in ("output", "log")]
        return "".join(text.read_text(encoding="utf-8", errors="replace") for text in texts if text.exists())

    def check_server(self, process, port, graceful_restart, graceful_end):
        """Workers answer; one that is killed is replaced; all are replaced when the server is told so; nothing is left."""
        self.assertTrue(waits(lambda: self.answers(port)), self.said())
        self.use(port)
        first = self.first()
        victim = children_of(first)[0]
        os.kill(victim, signal.SIGKILL)
        self.assertTrue(waits(lambda: victim not in children_of(first)))
        self.use(port)
        before = children_of(first)
        os.kill(first, graceful_restart)
        self.assertTrue(waits(lambda: not set(before) & set(children_of(first))), (before, children_of(first), self.said()))
        self.assertTrue(waits(lambda: self.answers(port)), self.said())
        self.use(port)
        session = os.getsid(first)
        os.kill(first, graceful_end)
        self.assertEqual(process.wait(PATIENCE_S), 0, self.said())
        self.assertNotIn("multigrain", self.said())
        self.assertTrue(waits(lambda: not processes_of_session(session)), self.said())

    @unittest.skipUnless(NGINX, "there is no nginx")
    def test_nginx(self):
        for options in RUNS:
            with self.subTest(options=options):
                port = free_port()
                user = f"user {self.user[0]} {self.user[1]};" if self.user else ""
                Path(f"{self.folder}/nginx.conf").write_text(NGINX_SETTINGS.format(folder=self.folder, port=port, user=user), encoding="ascii")
                process = self.start(options, NGINX, "-p", self.folder, "-e", f"{self.folder}/log", "-c", f"{self.folder}/nginx.conf")
                self.check_server(process, port, signal.SIGHUP, signal.SIGQUIT)

    @unittest.skipUnless(APACHE, "there is no Apache")
    def test_apache_prefork(self):
        modules = Path(APACHE).resolve().parents[1] / "lib/apache2/modules"
        for options in RUNS:
            for mutex in ("pthread", "sysvsem", f"fcntl:{self.folder}"):
                with self.subTest(options=options, mutex=mutex):
                    port = free_port()
                    user = f"User {self.user[0]}\nGroup {self.user[1]}" if self.user else ""
                    settings = APACHE_SETTINGS.format(
                        folder=self.folder, port=port, other=free_port(), modules=modules, user=user, mutex=f"{mutex} default"
                    )  # fmt: skip
                    Path(f"{self.folder}/apache.conf").write_text(settings, encoding="ascii")
                    process = self.start(options, APACHE, "-DFOREGROUND", "-f", f"{self.folder}/apache.conf")
                    self.check_server(process, port, signal.SIGUSR1, signal.SIGWINCH)

    @unittest.skipUnless(shutil.which("make") and shutil.which("gcc"), "there is no make, or no gcc")
    def test_make(self):
        names = [f"part{i}" for i in range(12)]
        for name in names:
            text = f'#include "parts.h"\nint {name}(int x) {{ return x * {len(name)} + {name[4:]}; }}\n'
            Path(f"{self.folder}/{name}.c").write_text(text, encoding="ascii")
        Path(f"{self.folder}/parts.h").write_text("".join(f"int {name}(int);\n" for name in names), encoding="ascii")
        calls = " + ".join(f"{name}({i})" for i, name in enumerate(names))
        main = f'#include <stdio.h>\n#include "parts.h"\nint main() {{ printf("%d\\n", {calls}); return 0; }}\n'
        Path(f"{self.folder}/main.c").write_text(main, encoding="ascii")
        Path(f"{self.folder}/Makefile").write_text(
            "OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\n"
            "all: sum check\n"
            "sum: $(OBJECTS); @gcc -o $@ $^\n"
            "%.o: %.c parts.h; @gcc -O1 -c -o $@ $<\n"
            "check: sum; @./sum; $(MAKE) --no-print-directory fails || echo failed as it should\n"
            "fails:; @exit 3\n"
            "clean:; rm -f sum *.o\n",
            encoding="ascii",
        )

        def make(*prefix):
            subprocess.run(("make", "clean"), cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
            done = subprocess.run((*prefix, "make", "-j4"), cwd=self.folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
            objects = {file.name: file.read_bytes() for file in Path(self.folder).glob("*.o")}
            return done.returncode, done.stdout, done.stderr, objects

        alone = make()
        self.assertEqual((alone[0], len(alone[3])), (0, len(names) + 1), alone[:3])
        for options in RUNS:
            with self.subTest(options=options):
                self.assertEqual(make(f"{BIN}/mgrun", *options, "--binary", "--"), alone)


if __name__ == "__main__":
    unittest.main()
