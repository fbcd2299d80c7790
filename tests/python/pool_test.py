"""map() on all processors, and pools."""

import unittest

from programs import MACHINES, ProgramTest

MAP = """
    import numpy as np
    import multigrain as mg

    def square(x):
        return x * x, mg.processor()

    def add_to(pair):
        a, i = pair
        a[i] += i
        return a[i : i + 1]

    @mg.parallel
    def decorated(x):
        return -x

    def fail(x):
        if x == 37:
            raise ValueError(f"no {x}")
        return x

    if __name__ == "__main__":
        assert mg.map(square, []) == []
        got = mg.map(square, range(1000))
        assert [g[0] for g in got] == [x * x for x in range(1000)]
        assert {g[1] for g in mg.map(square, range(300), chunk=1)} <= set(range(mg.processors()))
        a = mg.array(100, "i8")
        parts = mg.map(add_to, [(a, i) for i in range(100)], chunk=3)
        assert (a == np.arange(100)).all() and all(mg.is_shared(part) for part in parts)
        assert mg.map(decorated, (1, 2)) == [-1, -2]
        for wrong, error, text in (
            (lambda: mg.map(fail, range(100)), ValueError, "no 37"),
            (lambda: mg.map(lambda x: x, range(9)), mg.CannotSend, "top level"),
            (lambda: mg.map(fail, [object, lambda: 0]), mg.CannotSend, "cannot be sent"),
            (lambda: mg.map(fail, [1], chunk=0), ValueError, "not of 0"),
        ):
            try:
                wrong()
            except error as caught:
                assert text in str(caught), caught
            else:
                raise AssertionError(text)
            assert mg.map(fail, range(30)) == list(range(30))
        print("right")
"""

POOL = """
    import time
    import numpy as np
    import multigrain as mg

    def work(x, y=0):
        return x + y, mg.processor()

    def fail(x):
        if x == 5:
            raise KeyError(x)
        return x

    def bump(a, i):
        a[i] += 1

    def late(x):
        time.sleep(0.05 if x == 0 else 0)
        return x

    def meet(x):
        mg.barrier()

    def hang_on(x):
        return mg.run(print)

    if __name__ == "__main__":
        P = mg.processors()
        with mg.Pool() as pool:
            assert pool.processes == max(P - 1, 1)
            got = pool.map(work, range(500))
            assert [g[0] for g in got] == list(range(500))
            assert {g[1] for g in got} <= (set(range(1, P)) or {0})
            assert pool.apply(work, (1,), {"y": 2})[0] == 3
            assert [g[0] for g in pool.starmap(work, [(1, 2), (3, 4)])] == [3, 7]
            assert [g[0] for g in pool.imap(work, range(10), chunksize=3)] == list(range(10))
            assert sorted(pool.imap_unordered(late, range(20))) == list(range(20))
            waiting = pool.apply_async(late, (0,))
            assert waiting.get(timeout=60) == 0 and waiting.ready() and waiting.successful()
            assert pool.map(work, []) == []
            a = mg.array(64, "i8")
            pool.starmap(bump, [(a, i) for i in range(64)])
            assert (a == 1).all()
            for wrong, error, text in (
                (lambda: pool.map(fail, range(9)), KeyError, "5"),
                (lambda: pool.map(lambda x: x, range(9)), mg.CannotSend, "top level"),
                (lambda: pool.map(meet, [0]), RuntimeError, "mg.barrier is for functions"),
                (lambda: mg.run(print), RuntimeError, "a pool, has the processors"),
            ):
                try:
                    wrong()
                except error as caught:
                    assert text in str(caught), caught
                else:
                    raise AssertionError(text)
            if P > 1:
                try:
                    pool.map(hang_on, [0])
                except RuntimeError as error:
                    assert "already" in str(error), error
        try:
            pool.map(work, [1])
        except ValueError as error:
            assert "closed" in str(error)
        # The processors are free again, and a pool may follow a pool.
        assert mg.run(mg.processor) == list(range(P))
        pool = mg.Pool()
        waiting = pool.map_async(work, range(10))
        pool.close()
        pool.join()
        assert [g[0] for g in waiting.get()] == list(range(10))
        try:
            with mg.Pool() as pool:
                pool.map_async(late, range(10))
                raise InterruptedError
        except InterruptedError:
            pass
        mg.Pool()          # left open: the program ends all the same
        print("right")
"""


class Pools(ProgramTest):
    def test_map(self):
        for nodes, per_node in MACHINES:
            with self.subTest(nodes=nodes, per_node=per_node):
                self.assertEqual(self.output_of(MAP, nodes, per_node), "right\n")

    def test_pool(self):
        for nodes, per_node in ((1, 1), *MACHINES):
            with self.subTest(nodes=nodes, per_node=per_node):
                self.assertEqual(self.output_of(POOL, nodes, per_node), "right\n")


if __name__ == "__main__":
    unittest.main()
