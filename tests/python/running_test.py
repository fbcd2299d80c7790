"""Functions on all processors: who runs what, results, exceptions, locks, and what goes wrong."""

import os
import stat
import sys

from programs import MACHINES, ProgramTest

WHO = """
    import os, sys, threading
    import multigrain as mg

    def who(*arguments, **keywords):
        return mg.processor(), mg.node(), os.getpid(), sys.argv, sys.flags.optimize, arguments, keywords

    if __name__ == "__main__":
        P, C = mg.processors(), mg.processors_per_node()
        got = mg.run(who, 1, [2], three=3)
        assert [g[:2] for g in got] == [(p, p // C) for p in range(P)], got
        assert len({g[2] for g in got}) == mg.nodes()
        assert got[0][2] == os.getpid()
        for g in got:
            assert g[3] == sys.argv and g[4] == sys.flags.optimize and g[5:] == ((1, [2]), {"three": 3}), g
        shares = [s for s in mg.run(mg.share_of, 1000)]
        assert shares[0].start == 0 and shares[-1].stop == 1000
        assert all(a.stop == b.start for a, b in zip(shares, shares[1:]))
        print("right", *sys.argv[1:])
"""

COPIES = """
    import multigrain as mg

    class Box:
        def __init__(self, value):
            self.value = value

    def change(things, box):
        things.append(mg.processor())
        box.value += 1
        return things, box.value

    @mg.parallel
    def twice(x):
        return inner(x)[0] + inner(x)[0] if mg.processor() < 0 else inner(x) * 2

    @mg.parallel
    def inner(x):
        return x + mg.processor()

    if __name__ == "__main__":
        things, box = [], Box(1)
        assert mg.run(change, things, box) == [([p], 2) for p in range(mg.processors())]
        assert things == [] and box.value == 1
        assert inner(10) == [10 + p for p in range(mg.processors())]
        assert twice(1) == [2 + 2 * p for p in range(mg.processors())]
        print("right")
"""

LOCKS = """
    import multigrain as mg

    def count(total, lock, times):
        for _ in range(times):
            with lock:
                total[0] += 1

    def produce_and_consume(queue, results, per_processor):
        for i in range(per_processor):
            queue.put((mg.processor(), i))
        for i in range(per_processor):
            results.put(queue.get())

    def wait_for_turn(turn, condition, order):
        with condition:
            while turn[0] != mg.processor():
                condition.wait()
            order[turn[0]] = turn[0] + 1
            turn[0] += 1
            condition.notify_all()

    def evens(barrier, seen):
        if mg.processor() % 2 == 0:
            seen[mg.processor()] = 1
            barrier.wait()
            return int(seen[::2].sum())

    if __name__ == "__main__":
        P = mg.processors()
        total, lock = mg.array(1, "i8"), mg.lock()
        mg.run(count, total, lock, 200)
        assert total[0] == 200 * P, total
        queue, results = mg.Queue(), mg.Queue()
        mg.run(produce_and_consume, queue, results, 30)
        got = [results.get() for _ in range(30 * P)]
        assert sorted(got) == [(p, i) for p in range(P) for i in range(30)]
        for p in range(P):       # what one processor has put in comes out in that order
            queue.put(p)
        assert [queue.get() for _ in range(P)] == list(range(P))
        try:
            results.get(block=False)
            raise AssertionError
        except mg.Empty:
            pass
        order = mg.array(P, "i4")
        mg.run(wait_for_turn, mg.array(1, "i4"), mg.Condition(), order)
        assert order.tolist() == [p + 1 for p in range(P)]
        half = (P + 1) // 2
        assert mg.run(evens, mg.Barrier(half), mg.array(P, "i4")) == [half if p % 2 == 0 else None for p in range(P)]
        print("right")
"""

LEFT = """
    import multigrain as mg

    def leave(locks):
        locks[mg.processor()].acquire()

    def take(locks):
        return [lock.acquire(blocking=False) and lock.release() is None for lock in locks]

    def take_twice(locks):
        mine = locks[mg.processor()]
        with mine:
            try:
                mine.acquire()
            except RuntimeError as error:
                assert "would wait for itself" in str(error)
        try:
            mine.release()
        except RuntimeError as error:
            return "does not hold" in str(error)

    if __name__ == "__main__":
        locks = [mg.lock() for _ in range(mg.processors())]
        try:
            mg.run(leave, locks)
        except RuntimeError as error:
            assert "without releasing 1 lock" in str(error), error
        else:
            raise AssertionError
        assert all(lock.acquire(blocking=False) for lock in locks)
        for lock in locks:
            lock.release()
        assert mg.run(take_twice, locks) == [True] * mg.processors()
        print("right")
"""

ERRORS = """
    import multigrain as mg

    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one}-{two}")

    def fail(which, kind):
        if mg.processor() == which:
            if kind == "value":
                raise ValueError("bad value")
            if kind == "odd":
                raise Odd(1, 2)
            if kind == "exit":
                raise SystemExit(7)
            if kind == "result":
                return lambda: 0
        if kind != "result":
            mg.barrier()
            mg.barrier()

    def come_once_less():
        if mg.processor() != 0:
            mg.barrier()

    def name_error():
        return undefined_name

    if __name__ == "__main__":
        P = mg.processors()
        for which in {0, P - 1}:
            for kind, error, text in (("value", ValueError, "bad value"), ("odd", mg.RemoteError, "Odd: 1-2"),
                                      ("exit", SystemExit, "7"), ("result", TypeError, "cannot be sent")):
                try:
                    mg.run(fail, which, kind)
                except BaseException as caught:
                    if which != 0 or kind != "odd":
                        assert type(caught) is error or isinstance(caught, error), repr(caught)
                    assert text in str(caught) or "1-2" in str(caught), caught
                    if which != 0:
                        cause = str(caught.__cause__)
                        assert f"processor {which} on node {mg.nodes() - 1}" in cause, cause
                        assert kind == "result" or "in fail" in cause, cause
                else:
                    raise AssertionError(kind)
        try:
            mg.run(come_once_less)
        except mg.BrokenBarrier as error:
            assert "processor 0 has ended" in str(error), error
        else:
            assert P == 1
        try:
            mg.run(name_error)
        except NameError as error:
            assert "undefined_name" in str(error)
        # The machine is as good as before.
        assert mg.run(mg.processor) == list(range(P))
        for wrong, error, text in (
            (lambda: mg.run(lambda: 0), mg.CannotSend, "top level of a module"),
            (lambda: mg.run(print, open(__file__)), mg.CannotSend, "cannot be sent"),
            (lambda: mg.barrier(), RuntimeError, "for functions that mg.run calls"),
            (lambda: mg.run(mg.run, print), RuntimeError, "already"),
        ):
            try:
                wrong()
            except error as caught:
                assert text in str(caught), caught
            else:
                raise AssertionError(text)
        print("right")
"""

UNCAUGHT = """
    import multigrain as mg

    def fail():
        if mg.processor() == 1:
            raise LookupError("nothing here")

    if __name__ == "__main__":
        mg.run(fail)
"""

UNGUARDED = """
    import multigrain as mg

    a = mg.array(10)

    def f():
        pass

    mg.run(f)
"""

PRINTS = """
    import sys
    import multigrain as mg

    def speak():
        print(f"processor {mg.processor()}")
        print(f"error {mg.processor()}", file=sys.stderr)

    if __name__ == "__main__":
        mg.run(speak)
        print("end")
"""


class Running(ProgramTest):
    def right(self, text, **options):
        for nodes, per_node in MACHINES:
            with self.subTest(nodes=nodes, per_node=per_node):
                self.assertEqual(self.output_of(text, nodes, per_node, **options), "right\n")

    def test_every_processor_runs_it(self):
        self.right(WHO)

    def test_options_and_arguments_of_the_interpreter(self):
        output = self.output_of(WHO, 2, 1, python=(sys.executable, "-O", "-W", "error"), arguments=("-x", "y z"))
        self.assertEqual(output, "right -x y z\n")

    def test_a_script_with_a_first_line(self):
        path = self.file(f"#!{sys.executable} -O\n" + "\n".join(line[4:] for line in WHO.splitlines()), "script")
        os.chmod(path, stat.S_IRWXU)
        ended = self.start((os.path.join(os.environ["MULTIGRAIN_TEST_BIN"], "mgrun"), "-n", "2", path))
        self.assertEqual((ended.stdout, ended.stderr, ended.returncode), ("right\n", "", 0))

    def test_a_wrapper_that_starts_the_interpreter(self):
        wrapper = self.file(f'#!/bin/sh\ntrue; /bin/true\nexec {sys.executable} "$@"\n', "python3-wrapper")
        os.chmod(wrapper, stat.S_IRWXU)
        self.assertEqual(self.output_of(WHO, 2, 1, python=(wrapper,)), "right\n")

    def test_arguments_and_results_are_copies(self):
        self.right(COPIES)

    def test_locks_conditions_barriers_and_queues(self):
        self.right(LOCKS)

    def test_mistakes_with_locks(self):
        self.right(LEFT)

    def test_exceptions_come_back(self):
        self.right(ERRORS)

    def test_an_exception_that_nobody_catches(self):
        ended = self.mgrun(UNCAUGHT, 2, 1)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("LookupError: nothing here", ended.stderr)
        self.assertIn("On processor 1 on node 1:", ended.stderr)
        self.assertIn('raise LookupError("nothing here")', ended.stderr)

    def test_a_program_that_every_node_would_run_anew(self):
        ended = self.mgrun(UNGUARDED, 2, 1)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("mg.array is called while node 1 imports the program", ended.stderr)
        self.assertIn('if __name__ == "__main__":', ended.stderr)

    def test_what_functions_print(self):
        ended = self.mgrun(PRINTS, 4, 1)
        self.assertEqual(sorted(ended.stdout.splitlines()), ["end", *(f"processor {p}" for p in range(4))])
        self.assertEqual(ended.stdout.splitlines()[-1], "end")
        self.assertEqual(sorted(ended.stderr.splitlines()), [f"error {p}" for p in range(4)])

    def test_a_program_without_multigrain(self):
        text = """
            import os, subprocess, sys
            print("once", sys.argv[1], [n for n in os.environ if n.startswith("MULTIGRAIN_NODE") or n == "LD_PRELOAD"])
            child = subprocess.run([sys.executable, "-c", "print('child')"], capture_output=True, text=True, check=True)
            print(child.stdout, end="")
        """
        self.assertEqual(self.output_of(text, 3, 1, arguments=("x",)), "once x []\nchild\n")

    def test_exit_status(self):
        text = """
            import sys
            import multigrain as mg

            def leave():
                if mg.processor() == mg.processors() - 1:
                    sys.exit(6)

            if __name__ == "__main__":
                mg.run(int)
                if len(sys.argv) > 1:
                    mg.run(leave)
                sys.exit(5)
        """
        self.assertEqual(self.mgrun(text, 2, 1).returncode, 5)
        self.assertEqual(self.mgrun(text, 2, 1, arguments=("worker",)).returncode, 6)

    def test_a_function_that_only_the_program_has(self):
        text = """
            import multigrain as mg

            if __name__ == "__main__":
                def f():
                    pass

                try:
                    mg.run(f)
                except mg.CannotSend as error:
                    print(error)
                assert mg.run(mg.processor) == [0, 1]
        """
        output = self.output_of(text, 2, 1)
        self.assertIn("node 1 does not have what it was sent", output)
        self.assertIn("'f'", output)

    def test_an_interrupt(self):
        text = """
            import os, signal, sys, time
            import multigrain as mg

            def wait(where):
                if mg.processor() == 0:
                    os.kill(os.getpid(), signal.SIGINT)
                    if where == "function":
                        time.sleep(60)
                else:
                    time.sleep(0.3)
                mg.barrier()

            if __name__ == "__main__":
                for where in ("function", "barrier"):
                    try:
                        mg.run(wait, where)
                    except KeyboardInterrupt:
                        print("interrupted")
                    assert mg.run(mg.processor) == list(range(mg.processors()))
        """
        self.assertEqual(self.output_of(text, 2, 2), "interrupted\ninterrupted\n")

    def test_a_program_that_is_text(self):
        program = "import multigrain as mg\ndef f(): pass\nprint(mg.run(mg.node))\nmg.run(f)"
        ended = self.start((os.path.join(os.environ["MULTIGRAIN_TEST_BIN"], "mgrun"), "-n", "2", "--", sys.executable, "-c", program))
        self.assertEqual(ended.stdout, "[0, 1]\n")
        try:
            import cloudpickle  # noqa: F401
        except ImportError:
            self.assertIn("pip install cloudpickle", ended.stderr)
            self.assertEqual(ended.returncode, 1)
        else:
            self.assertEqual(ended.returncode, 0)
