"""Arrays that nodes share: NumPy works on them as on any memory, and they live as long as anybody has them."""

from programs import MACHINES, ProgramTest

ADD = """
    import numpy as np
    import multigrain as mg

    def add(a, b):
        mine = mg.share_of(len(a))
        a[mine] = np.arange(len(a))[mine, None] + mg.processor()
        mg.barrier()
        b[mine] = np.roll(a, 1, axis=0)[mine]     # reads a neighbour's rows
        mg.barrier()
        return float(b.sum())

    if __name__ == "__main__":
        a = mg.array((1000, 37), "f8")
        b = mg.array((1000, 37), "f8")
        sums = mg.run(add, a, b)
        wanted = np.zeros((1000, 37))
        P = mg.processors()
        for p in range(P):
            rows = slice(1000 * p // P, 1000 * (p + 1) // P)
            wanted[rows] = np.arange(1000)[rows, None] + p
        assert (a == wanted).all()
        assert (b == np.roll(wanted, 1, axis=0)).all()
        assert sums == [wanted.sum()] * P, sums
        print("right", mg.nodes(), P)
"""

FILES = """
    import os
    import numpy as np
    import multigrain as mg

    def save(a, folder):
        if mg.processor() == mg.processors() - 1:
            np.save(f"{folder}/saved.npy", a)
            a.tofile(f"{folder}/raw")
            with open(f"{folder}/written", "wb", buffering=0) as file:
                assert file.write(a) == a.nbytes
            a[:] = 0

    def load(a, b, folder):
        if mg.processor() == mg.processors() - 1:
            with open(f"{folder}/written", "rb", buffering=0) as file:
                assert file.readinto(memoryview(a).cast("B")) == a.nbytes
            b[...] = np.load(f"{folder}/saved.npy")
            ends = os.pipe()
            assert os.writev(ends[1], [a[:16]]) == 128
            assert os.readv(ends[0], [b[16:32]]) == 128

    if __name__ == "__main__":
        folder = os.getcwd()
        a = mg.copy(np.arange(50_000.0))
        b = mg.array(50_000)
        mg.run(save, a, folder)
        assert a.sum() == 0
        mg.run(load, a, b, folder)
        assert (a == np.arange(50_000)).all()
        wanted = np.arange(50_000.0)
        wanted[16:32] = np.arange(16)
        assert (b == wanted).all(), b[:40]
        assert (np.fromfile("raw") == np.arange(50_000)).all()
        np.save("again.npy", a)
        assert (np.load("again.npy") == a).all()
        print("right")
"""

LIVES = """
    import gc
    import numpy as np
    import multigrain as mg
    from multigrain.shared import blocks

    def count(a):
        block = blocks.block_at(a.__array_interface__["data"][0])
        return blocks._Control.from_address(block.name.control).count

    kept = []

    def keep(a):
        if mg.node() == mg.nodes() - 1:
            kept.append(a[3:5])

    def use_kept():
        if mg.node() == mg.nodes() - 1:
            return kept[0].tolist()

    def drop():
        kept.clear()
        gc.collect()

    def make():
        return mg.copy(np.full(10_000, mg.processor())) if mg.processor() == mg.processors() - 1 else None

    if __name__ == "__main__":
        a = mg.copy(np.arange(10_000.0))
        address = a.__array_interface__["data"][0]
        assert count(a) == 1
        mg.run(keep, a)
        others = mg.nodes() - 1
        assert count(a) == 1 + min(others, 1), count(a)      # the node that keeps a part
        del a
        gc.collect()
        blocks.give_back_collected()
        other = mg.array(10_000)
        if others:
            # The block is not free, because another node has a part of it.
            assert other.__array_interface__["data"][0] != address
        assert mg.run(use_kept)[-1] == [3.0, 4.0]
        mg.run(drop)
        mg.run(drop)
        made = mg.run(make)[-1]
        assert count(made) == 1 and made[-1] == mg.processors() - 1
        part = made[::-2]
        del made
        gc.collect()
        assert (mg.run(np.sum, part)[-1]) == 5000 * (mg.processors() - 1)
        # Blocks are used again: this would take 400 GB otherwise.
        for i in range(200):
            big = mg.array(250_000_000)
            big[0] = i
            assert mg.run(np.take, big, 0) == [i] * mg.processors()
            del big
        print("right")
"""

BLAS = """
    import numpy as np
    import multigrain as mg

    def multiply(a, b, c):
        mine = mg.share_of(len(a))
        np.matmul(a[mine], b, out=c[mine])

    if __name__ == "__main__":
        random = np.random.default_rng(1)
        a, b = (mg.copy(random.random((300, 300)), home="interleaved") for _ in range(2))
        c = mg.array((300, 300), home="blocked")
        mg.run(multiply, a, b, c)
        assert np.allclose(c, np.array(a) @ np.array(b))
        assert np.allclose(np.linalg.solve(a, a @ np.ones(300)), 1)
        c.sort(axis=1)
        assert (np.diff(c) >= 0).all()
        assert np.allclose(np.fft.ifft(np.fft.fft(a)).real, a)
        print("right")
"""

SHAPES = """
    import numpy as np
    import multigrain as mg

    def describe(*arrays):
        return [(a.shape, a.dtype.str, a.strides, a.flags.c_contiguous, mg.is_shared(a)) for a in arrays]

    def fill(a):
        if mg.processor() == mg.processors() - 1:
            a["name"], a["at"] = b"here", [1, 2, 3]

    if __name__ == "__main__":
        record = np.dtype([("name", "S8"), ("at", "i4", 3)])
        arrays = [mg.array(5, "i1"), mg.array((2, 3), "c16", order="F"), mg.array(()), mg.array(0), mg.array((4, 4))[1:, ::-2],
                  mg.array(7, record), np.zeros(3)]
        wanted = describe(*arrays)
        for got in mg.run(describe, *arrays):
            assert got == wanted, (got, wanted)
        assert [d[-1] for d in wanted] == [True] * 6 + [False]
        mg.run(fill, arrays[5])
        assert arrays[5][6]["name"] == b"here" and arrays[5][0]["at"].tolist() == [1, 2, 3]
        for wrong, error, text in (
            (lambda: mg.array(3, "O"), TypeError, "objects of Python"),
            (lambda: mg.array(-1), ValueError, "-1 elements"),
            (lambda: mg.array(3, home="nowhere"), ValueError, "'nowhere'"),
            (lambda: mg.array(3, home=99), ValueError, "no node 99"),
            (lambda: mg.array(3, home=-1), ValueError, "-1"),
            (lambda: mg.array(3, protocol="shasta"), ValueError, "access checks"),
            (lambda: mg.array(3, protocol="sc"), ValueError, "page protocol of this run is"),
            (lambda: mg.array(1 << 58, "i1"), MemoryError, "no room"),
        ):
            try:
                wrong()
            except error as caught:
                assert text in str(caught), caught
            else:
                raise AssertionError(text)
        print("right")
"""


class Arrays(ProgramTest):
    def test_all_nodes_share_them(self):
        for nodes, per_node in MACHINES:
            with self.subTest(nodes=nodes, per_node=per_node):
                self.assertEqual(self.output_of(ADD, nodes, per_node), f"right {nodes} {nodes * per_node}\n")

    def test_under_every_page_protocol(self):
        for protocol in ("mgs", "hlrc", "sc", "placement"):
            for mechanism in ("auto", "mprotect"):
                with self.subTest(protocol=protocol, mechanism=mechanism):
                    options = ("--protocol", protocol) + (("--access", mechanism) if mechanism != "auto" else ())
                    self.assertEqual(self.output_of(ADD, 2, 2, options), "right 2 4\n")

    def test_over_ucx(self):
        self.assertEqual(self.output_of(ADD, 2, 1, ("--fabric", "ucx")), "right 2 2\n")

    def test_files_and_pipes(self):
        for nodes, per_node in MACHINES:
            with self.subTest(nodes=nodes, per_node=per_node):
                self.assertEqual(self.output_of(FILES, nodes, per_node), "right\n")

    def test_live_until_nobody_has_them(self):
        for nodes, per_node in MACHINES:
            with self.subTest(nodes=nodes, per_node=per_node):
                self.assertEqual(self.output_of(LIVES, nodes, per_node), "right\n")

    def test_libraries_work_on_them(self):
        self.assertEqual(self.output_of(BLAS, 2, 2), "right\n")

    def test_shapes_and_mistakes(self):
        self.assertEqual(self.output_of(SHAPES, 2, 1, ("--protocol", "hlrc")), "right\n")
