"""tests/upstream judges a file of ours: each kind of end that a test can come to."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("upstream", "conformance"))

from workers import Limits, Worker

LONG = 500  # seconds that a test may take, for all that end
FILE = """
import os, time, unittest
import torch
import torch_npu

class TestOwn(unittest.TestCase):
    def test_a_passes(self):
        self.assertEqual((torch.ones(3).npu() + 1).sum().item(), 6)

    def test_b_differs(self):
        self.assertEqual((torch.ones(3).npu() + 1).sum().item(), 7)

    def test_c_skips(self):
        self.skipTest("for a reason")

    def test_d_is_refused(self):
        torch.linalg.inv(torch.ones(2, 2, dtype=torch.float16).npu())

    def test_e_crashes(self):
        os.abort()

    def test_f_hangs(self):
        time.sleep(3600)

    def test_g_follows_them(self):
        self.assertEqual(os.path.basename(__file__), "test_own.py")

    def test_h_has_parts(self):
        for part in range(3):
            with self.subTest(part=part):
                self.assertNotEqual(part, 1)

    def test_j_has_ranks(self):
        said = "Process 1 exited with error code 10 and exception:\\nTraceback (most recent call last):\\n  File 'a'"
        raise RuntimeError(said + ", line 3, in run\\n    raise ValueError(\\nValueError: a rank's own\\n")

    def test_k_has_ranks_that_are_threads(self):
        said = "Thread 7 exited with exception:\\nTraceback (most recent call last):\\n  File 'a', line 3, in run\\n"
        raise RuntimeError(said + "TypeError: a thread's own\\n")

    @unittest.expectedFailure
    def test_i_fails_as_expected(self):
        self.fail()

class TestPrepared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise ValueError("never ready")

    def test_one(self):
        pass

if __name__ == "__main__":
    unittest.main()
"""

# What a spawned process finds: itself, the file as its main module, variables, the device; and how it ends.
SPAWNING = """
import os, time, unittest
import torch
import torch_npu

FILE = __file__

def look(answers, name):
    total = (torch.ones(3).npu() + 1).sum().item()
    forked = not any(word.startswith("tracker_fd") for word in open("/proc/self/cmdline").read().split("("))
    answers.put((total, os.environ.get(name), __name__, forked, FILE == __file__))

def share(answers):
    answers.put(torch.arange(3))

def end():
    os._exit(3)

def abort():
    os.abort()

class TestSpawning(unittest.TestCase):
    def looked(self, name):
        context = torch.multiprocessing.get_context("spawn")
        answers = context.Queue()
        process = context.Process(target=look, args=(answers, name))
        process.start()
        found = answers.get()
        process.join()
        self.assertEqual(process.exitcode, 0)
        return found

    def test_a_of_a_job(self):
        os.environ["MASTER_PORT"] = "1234"
        self.assertEqual(self.looked("MASTER_PORT"), (6, "1234", "__mp_main__", True, True))

    def test_b_of_another_torch_npu(self):
        os.environ["TASK_QUEUE_ENABLE"] = "0"
        try:
            found = self.looked("TASK_QUEUE_ENABLE")
        finally:
            del os.environ["TASK_QUEUE_ENABLE"]
        self.assertEqual(found, (6, "0", "__mp_main__", False, True))

    def test_d_shared_by_one_that_ends(self):
        context = torch.multiprocessing.get_context("spawn")
        answers = context.Queue()
        process = context.Process(target=share, args=(answers,))
        process.start()
        process.join(2)
        self.assertIsNone(process.exitcode)  # it waits for who fetches what it shares
        self.assertEqual(answers.get().tolist(), [0, 1, 2])
        process.join()

    def test_c_ends(self):
        for target, status in ((end, 3), (abort, -6)):
            process = torch.multiprocessing.get_context("spawn").Process(target=target)
            process.start()
            process.join()
            self.assertEqual(process.exitcode, status)
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Of a folder with three files; it has imported torch once, which takes the most of the time."""
    folder = tmp_path_factory.mktemp("upstream")
    (folder / "test_own.py").write_text(FILE, encoding="utf-8")
    (folder / "test_spawning.py").write_text(SPAWNING, encoding="utf-8")
    (folder / "test_lost.py").write_text("import nowhere\n", encoding="utf-8")
    worker = Worker(folder, {}, {}, Limits(seconds=LONG, memory=8), idle=False)
    yield worker
    worker.close()


def test_each_end_has_its_verdict(worker: Worker) -> None:
    hangs, next_one = "TestOwn.test_f_hangs", "TestOwn.test_g_follows_them"
    tests = re.findall(r"def (test_[a-z]_\w+)", FILE)
    others = [f"TestOwn.{test}" for test in tests if not hangs.endswith(test)] + ["TestPrepared.test_one"]
    found = {test: verdict for test, (verdict, _) in worker.judge("test_own.py", others).items()}
    worker.limits = Limits(seconds=10, memory=8)
    found |= {test: verdict for test, (verdict, _) in worker.judge("test_own.py", [hangs, next_one]).items()}
    worker.limits = Limits(seconds=LONG, memory=8)
    one = {test: verdict for test, (verdict, _) in worker.judge("test_own.py", ["TestOwn.test_a_passes"]).items()}
    assert one == {"TestOwn.test_a_passes": "PASS"}
    refused = found.pop("TestOwn.test_d_is_refused")
    assert refused.partition(":")[0] in ("NOT_OFFERED", "FAIL"), refused
    assert found == {
        "TestOwn.test_a_passes": "PASS",
        "TestOwn.test_b_differs": "FAIL: AssertionError: 6.0 != 7",
        "TestOwn.test_c_skips": "SKIP: for a reason",
        "TestOwn.test_e_crashes": "CRASH: SIGABRT",
        "TestOwn.test_f_hangs": "TIMEOUT: more than 10 s",
        "TestOwn.test_g_follows_them": "PASS",
        "TestOwn.test_h_has_parts": "FAIL: AssertionError: 1 == 1",
        "TestOwn.test_i_fails_as_expected": "PASS",
        "TestOwn.test_j_has_ranks": "FAIL: ValueError: a rank's own",
        "TestOwn.test_k_has_ranks_that_are_threads": "FAIL: TypeError: a thread's own",
        "TestPrepared.test_one": "FAIL: setUpClass: ValueError: never ready",
    }


def test_spawned_processes_are_forked_where_nothing_tells_them_apart(worker: Worker) -> None:
    """Those with another variable for torch_npu are spawned."""
    found = {test: verdict for test, (verdict, _) in worker.judge("test_spawning.py").items()}
    assert found == dict.fromkeys(
        (
            "TestSpawning.test_a_of_a_job",
            "TestSpawning.test_b_of_another_torch_npu",
            "TestSpawning.test_c_ends",
            "TestSpawning.test_d_shared_by_one_that_ends",
        ),
        "PASS",
    )


def test_a_file_that_cannot_be_imported_says_why(worker: Worker) -> None:
    said = "FAIL: ModuleNotFoundError: No module named 'nowhere'"
    assert worker.judge("test_lost.py") == {"(import)": (said, 0)}


@pytest.mark.upstream  # compiles two sources and links the operators
def test_operators_that_do_nothing_leave_their_results_alone(tmp_path: Path) -> None:
    import idle

    (tmp_path / "test_own.py").write_text(FILE, encoding="utf-8")
    libraries = {"VNPU_LIBRARIES": str(idle.build())}
    worker = Worker(tmp_path, {}, libraries, Limits(seconds=LONG, memory=8), idle=True)
    asked = ["TestOwn.test_a_passes", "TestOwn.test_g_follows_them"]
    found = {test: verdict.partition(":")[0] for test, (verdict, _) in worker.judge("test_own.py", asked).items()}
    worker.close()
    assert found == {"TestOwn.test_a_passes": "FAIL", "TestOwn.test_g_follows_them": "PASS"}
