"""Checkpoints of programs of Python: a run goes on from one as if nothing had happened."""

import os
import sys
import unittest

from programs import BIN, MACHINES, ProgramTest

# Its result depends on all that a checkpoint has: arrays, an array that is a part of another, a lock, and how far it has come.
STEPS = """
    import os, signal, sys
    import multigrain as mg

    def step(whole, middle, total, lock, number):
        mine = mg.share_of(len(whole))
        whole[mine] = whole[mine] * 3 + number
        mg.barrier()
        if mg.processor() == mg.processors() - 1:
            middle *= 5
        mg.barrier()
        with lock:
            total[0] += int(whole[mine].sum()) + mg.processor()

    def die(which):
        if mg.processor() == which:
            os.kill(os.getpid(), signal.SIGKILL)

    if __name__ == "__main__":
        last, dies = int(sys.argv[1]), sys.argv[2]
        state = mg.restored()
        if state is None:
            whole = mg.array(40_000, "u8")
            state = {"whole": whole, "middle": whole[1000:30_000:7], "total": mg.array(1, "u8"), "lock": mg.lock(), "done": 0}
        began = state["done"]
        print("began at", began)
        written = 0
        while state["done"] < 8:
            mg.run(step, state["whole"], state["middle"], state["total"], state["lock"], state["done"])
            state["done"] += 1
            written += mg.checkpoint(state)
            if state["done"] == last and began < last:
                mg.run(die, 0 if dies == "program" else mg.processors() - 1)
        print("result", int(state["whole"].sum()), int(state["total"][0]), int((state["middle"] - state["whole"][1000:30_000:7]).sum()))
        print("wrote", written, file=sys.stderr)
"""


class CheckpointsTest(ProgramTest):
    def checkpoints(self):
        return os.path.join(self.folder, "checkpoints")

    def lines(self, ended, word):
        return [line for line in ended.stdout.splitlines() if line.startswith(word)]

    def test_a_run_goes_on_after_a_node_has_died(self):
        for (nodes, per_node), protocol, dies in zip(
            MACHINES, ("mgs", "hlrc", "mgs"), ("program", "last", "last"), strict=True
        ):
            with self.subTest(nodes=nodes, per_node=per_node, protocol=protocol, dies=dies):
                self.goes_on(nodes, per_node, protocol, dies)

    def goes_on(self, nodes, per_node, protocol, dies):
        options = ("--protocol", protocol)
        undisturbed = self.mgrun(STEPS, nodes, per_node, options, arguments=("0", dies))
        self.assertEqual(undisturbed.returncode, 0, undisturbed.stderr)
        self.assertIn("wrote 0", undisturbed.stderr)
        into = (*options, "--checkpoint", self.checkpoints())
        died = self.mgrun(STEPS, nodes, per_node, into, arguments=("5", dies))
        self.assertNotEqual(died.returncode, 0)
        self.assertEqual(died.stdout, "began at 0\n", "What was printed before the checkpoint is there.")
        restarted = self.mgrun(
            STEPS, nodes, per_node, (*options, "--restart", self.checkpoints()), arguments=("5", dies)
        )
        self.assertEqual(restarted.returncode, 0, restarted.stderr)
        self.assertEqual(restarted.stdout.splitlines()[0], "began at 5")
        self.assertEqual(self.lines(restarted, "result"), self.lines(undisturbed, "result"))
        by_itself = self.mgrun(STEPS, nodes, per_node, (*into, "--restart-on-failure", "1"), arguments=("3", dies))
        self.assertEqual(by_itself.returncode, 0, by_itself.stderr)
        self.assertEqual(self.lines(by_itself, "began"), ["began at 0", "began at 3"])
        self.assertEqual(self.lines(by_itself, "result"), self.lines(undisturbed, "result"))
        self.assertIn("wrote 5", by_itself.stderr)

    def test_arrays_of_a_checkpoint_are_freed_when_nobody_has_them(self):
        text = """
            import multigrain as mg

            def fill(a, value):
                a[mg.share_of(len(a))] = value

            if __name__ == "__main__":
                state = mg.restored() or [mg.array(20 << 20, "u1")]
                mg.run(fill, state[0], 7)
                mg.checkpoint(state)
                for i in range(6):
                    mg.run(fill, state[0], i)
                    state.clear()
                    state.append(mg.array(20 << 20, "u1"))
                    assert not state[0].any()
                print("done")
        """
        options = ("--region-size", "64M", "--checkpoint", self.checkpoints())
        self.assertEqual(self.output_of(text, 2, options=options), "done\n")
        ended = self.mgrun(text, 2, options=(*options, "--restart", self.checkpoints()))
        self.assertEqual((ended.returncode, ended.stdout), (0, "done\n"), ended.stderr)

    def test_what_synchronises_is_made_again(self):
        text = """
            import multigrain as mg

            def take_turns(first, second, condition, barrier, number):
                for _ in range(20):
                    with first if mg.processor() % 2 else second:
                        number[0] += 1
                barrier.wait()
                with condition:
                    number[1] += 1
                    if number[1] == mg.processors():
                        condition.notify_all()
                    else:
                        while number[1] < mg.processors():
                            condition.wait()

            if __name__ == "__main__":
                state = mg.restored()
                if state is None:
                    lock = mg.lock()
                    state = [lock, lock, mg.Condition(lock), mg.Barrier(mg.processors()), mg.array(2, "u8")]
                state[4][:] = 0
                mg.run(take_turns, *state)
                print(state[0] is state[1], state[4])
                mg.checkpoint(state)
        """
        options = ("--checkpoint", self.checkpoints())
        told = "True [80  4]\n"
        self.assertEqual(self.output_of(text, 2, 2, options=options), told)
        ended = self.mgrun(text, 2, 2, options=(*options, "--restart", self.checkpoints()))
        self.assertEqual((ended.returncode, ended.stdout), (0, told), ended.stderr)

    def test_what_makes_no_sense_is_refused(self):
        text = """
            import threading

            import multigrain as mg

            def try_it(state):
                mg.checkpoint(state)

            def refused(call):
                try:
                    call()
                except Exception as error:
                    print(type(error).__name__, error)

            if __name__ == "__main__":
                lock = mg.lock()
                refused(lambda: mg.checkpoint(mg.Queue()))
                refused(lambda: mg.checkpoint(threading.Lock()))
                refused(lambda: mg.run(try_it, 1))
                with lock:
                    refused(lambda: mg.checkpoint(1))
                with mg.Pool() as pool:
                    refused(lambda: mg.checkpoint(1))
                print(mg.checkpoint(1), mg.restored())
        """
        told = self.output_of(text, 2, options=("--checkpoint", self.checkpoints())).splitlines()
        for line, part in zip(
            told,
            (
                "CannotSend a queue cannot be kept in a checkpoint",
                "CannotSend this cannot be sent",
                "RuntimeError mg.checkpoint is called by a function that runs on all processors",
                "RuntimeError mg.checkpoint is called while this thread holds a lock",
                "RuntimeError mg.checkpoint is called while another thread of the program, or a pool, has the processors",
                "True None",
            ),
            strict=True,
        ):
            self.assertTrue(line.startswith(part), line)
        other = self.file(text, "other.py")
        words = [os.path.join(BIN, "mgrun"), "-n", "2", "--restart", self.checkpoints(), "--", sys.executable, other]
        ended = self.start(words)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn(
            "the checkpoint is of the program 'program.py', and this one is 'other.py'", ended.stderr + ended.stdout
        )

    def test_a_full_disk_leaves_the_last_one(self):
        text = """
            import os, sys
            import multigrain as mg

            if __name__ == "__main__":
                state = mg.restored() or [0]
                for i in range(state[0], 3):
                    if i == 2 and len(sys.argv) > 1:
                        os.symlink("/dev/full", sys.argv[1] + "/memory-3-1")
                    state[0] = i + 1
                    print(i, mg.checkpoint(state))
        """
        options = ("--checkpoint", self.checkpoints())
        ended = self.mgrun(text, 2, options=options, arguments=(self.checkpoints(),))
        self.assertEqual((ended.returncode, ended.stdout), (0, "0 True\n1 True\n2 False\n"), ended.stderr)
        self.assertIn("the run goes on, and checkpoint 2 stays", ended.stderr)
        ended = self.mgrun(text, 2, options=("--restart", self.checkpoints()))
        self.assertEqual((ended.returncode, ended.stdout), (0, "2 False\n"), ended.stderr)


if __name__ == "__main__":
    unittest.main()
