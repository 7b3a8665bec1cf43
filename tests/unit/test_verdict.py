"""The word on a port: what has to be refused, what is left open, and what may pass."""

import math

import pytest
from recordings import SITE, calls, losses, write

from torchport.compare import compare_recordings
from torchport.compare.causes import explain_failure, virtual_gap
from torchport.report import render_comparison
from torchport.results.codec import from_json, to_json
from torchport.results.comparison import Comparison

CURVE = [2.3 * 0.97**step for step in range(20)]


def error(text):
    return {"kind": "error", "error": text, "path": "train.py", "line": 7}


@pytest.fixture
def judge(tmp_path):
    """The data of a comparison of two lists of events, the second of which ought to have run on the NPU."""

    def make(reference, port, *, theirs=(), ours=(), **more):
        folders = [tmp_path / name for name in ("reference", "npu")]
        for folder in folders:
            folder.mkdir()
        runs = [
            write(folder, *(processes if isinstance(processes, tuple) else (processes,)), **dict(ending), **more)
            for folder, processes, ending in zip(folders, (reference, port), (theirs, ours), strict=True)
        ]
        result = compare_recordings(*runs, on_npu=True)
        return to_json(result.data) | {"codes": [finding.code for finding in result.findings]}

    return make


def original(values=CURVE, **more):
    return list(losses(values, device="cpu", launches=None, **more))


# --- what must be refused


def test_a_port_that_never_used_the_npu(judge):
    data = judge(original(), list(losses(CURVE, device="cpu", launches=0)))
    assert data["verdict"] == "does not hold"
    assert data["reason"].startswith("the port did not use the NPU: 20 of 20 steps launched no operator")


def test_a_port_that_used_the_npu_only_at_first(judge):
    events = list(losses(CURVE))
    for event in events[10:]:
        event["launches"] = 50
    data = judge(original(), events)
    assert data["verdict"] == "does not hold"
    assert "did not use the NPU: 15 of 20 steps" in data["reason"]


def test_a_port_whose_tensors_are_on_the_cpu_although_something_was_launched(judge):
    data = judge(original(), list(losses(CURVE, device="cpu", launches=3)))
    assert data["verdict"] == "does not hold"
    assert "loss, gradients and parameters are on the CPU" in data["reason"]


@pytest.mark.parametrize("ended", [None, "timeout"])
def test_a_port_that_was_stopped_before_its_first_step_decides_nothing(judge, ended):
    """A busy machine: that fewer of its processes trained speaks of --timeout alone."""
    data = judge(
        original(),
        [],
        theirs={"status": -15 if ended else 0, "stopped": ended or ""},
        ours={"status": -15, "stopped": "timeout"},
    )
    assert (data["verdict"], data["codes"][0]) == ("undecided", "TP311")
    assert "TP303" not in data["codes"]


@pytest.mark.parametrize(
    ("devices", "placed", "named"),
    [(["cpu"], [], False), (["cuda"], [], True), (["cpu"], ["teacher.w"], True), (None, [], True)],
)
def test_an_original_that_moves_nothing_to_a_gpu_is_told_so(judge, devices, placed, named):
    """A batch that is copied with `.to("cpu")` is an upload as well, and says nothing."""
    told = {"kind": "parameters", "optimizer": 0, "step": 0, "names": ["w"], "sizes": [1]}
    told |= {} if devices is None else {"devices": devices}
    copied = {"kind": "upload", "site": "a.py:1", "visit": 0, "size": 4, "checksum": "", "sum": 0.0, "norm": 1.0}
    modules = {"kind": "placed", "site": "a.py:2 Net", "cuda": placed, "cpu": []}
    data = judge([told, copied, modules, *original()], list(losses(CURVE, device="cpu", launches=3)))
    assert ("the original moves no module and no data to a GPU either" in data["reason"]) is not named


def test_where_nothing_counts_launches_the_devices_decide(judge):
    data = judge(original(), list(losses(CURVE, device="cpu", launches=None)))
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP345"])


def test_an_evaluation_on_the_cpu(judge):
    data = judge(list(calls([3.0, 4.0], "cpu", 0)), list(calls([3.0, 4.0], "cpu", 0)))
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP345"])


@pytest.mark.parametrize(
    "port",
    [
        [loss * 1.01 for loss in CURVE],
        [*CURVE[:7], *[loss + 0.01 for loss in CURVE[7:]]],
        [*CURVE[:19], math.nan],
        [CURVE[0]] * 20,  # the optimizer's step was deleted
    ],
)
def test_other_losses(judge, port):
    assert judge(original(), list(losses(port)))["verdict"] == "does not hold"


def settings(step, optimizer=0, **values):
    return {"kind": "settings", "optimizer": optimizer, "step": step, "groups": [values]}


@pytest.mark.parametrize(
    ("theirs", "ours", "says"),
    [
        ([settings(0, lr=0.1)], [settings(0, lr=0.3)], "lr is 0.3, the original's 0.1 (optimizer 0, step 0)"),
        (
            [settings(0, lr=0.1), settings(5, lr=0.01)],
            [settings(0, lr=0.1)],
            "lr is 0.1, the original's 0.01 (optimizer 0, step 5)",
        ),
        ([settings(0, momentum=0.9)], [settings(0, momentum=0)], "momentum is 0"),
        ([settings(0, betas=[0.9, 0.999])], [settings(0, betas=[0.9, 0.99])], "betas is [0.9, 0.99]"),
        ([settings(0, nesterov=True)], [settings(0, nesterov=False)], "nesterov is False"),
        ([settings(0, optimizer=1, lr=0.1)], [settings(0, optimizer=1, lr=0.11)], "optimizer 1"),
    ],
)
def test_other_settings_of_an_optimizer_although_the_losses_agree(judge, theirs, ours, says):
    data = judge([*original(), *theirs], [*losses(CURVE), *ours])
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP350"])
    assert says in data["reason"]


def test_fewer_steps(judge):
    assert judge(original(), list(losses(CURVE[:19])))["verdict"] == "does not hold"


def test_a_second_loss_that_only_one_side_has(judge):
    port = [*losses(CURVE), *losses([1.0], site="train.py:30", launches=300)]
    data = judge([*original(), *original([1.0], site="train.py:31")], port)
    assert data["verdict"] == "does not hold"
    assert "only the original comes by train.py:31" in data["reason"]


def test_one_curve_of_three_that_differs(judge):
    def three(last, **more):
        for step in range(20):
            for site, value in (("a.py:1", 1.0), ("a.py:2", 2.0), ("a.py:3", last(step))):
                yield from losses([value], site=site, **more)

    reference = three(lambda step: 3.0, device="cpu", launches=None)
    port = list(three(lambda step: 3.0 if step < 12 else 3.1))
    for number, event in enumerate(port):
        event["launches"] = number + 1
    data = judge(list(reference), port)
    assert data["verdict"] == "does not hold"
    assert "the loss at a.py:3 differs from step 38 on" in data["reason"]
    assert [curve["name"] for curve in data["curves"]] == ["a.py:1", "a.py:2", "a.py:3"]


def test_a_port_that_fails(judge):
    data = judge(original(), [*losses(CURVE[:3]), error("RuntimeError: no")], ours={"status": 1})
    assert data["verdict"] == "does not hold"
    assert "the port ended with exit status 1 after 3 steps: RuntimeError: no" in data["reason"]


def test_a_port_that_fails_before_it_trains_is_told_its_error(judge):
    events = [*calls([1.0], "cpu", 0), error("ValueError: Invalid CUDA device")]
    data = judge(original(), events, ours={"status": 1})
    assert data["verdict"] == "does not hold"
    assert "Invalid CUDA device" in data["reason"]


@pytest.mark.parametrize(
    "launcher", ["torch.distributed.elastic.ChildFailedError: === 1 failed", "ProcessRaisedException:"]
)
def test_the_error_of_a_rank_comes_before_the_launchers(judge, launcher):
    ranks = [error(launcher)], [*losses(CURVE[:3]), error("RuntimeError: of the rank")]
    data = judge((original(), original()), ranks, ours={"status": 1})
    assert "after 3 steps: RuntimeError: of the rank" in data["reason"]


def test_a_launcher_without_an_error_of_a_rank(judge):
    data = judge(original(), [*losses(CURVE[:3]), error("ChildFailedError: rank 1 was killed")], ours={"status": 1})
    assert "ChildFailedError: rank 1 was killed" in data["reason"]


def test_a_port_that_dies_inside_a_step_has_no_other_parameters(judge):
    """Before its optimizer stepped: what it had not come to is no difference, another number of parameters is."""
    made = {"kind": "parameters", "optimizer": 0, "step": 0, "names": ["a", "b"], "sizes": [3, 4]}
    region = {"kind": "autocast", "site": "a.py:3", "dtype": "bfloat16", "enabled": True}
    precision = {"kind": "precision", "dtype": "bfloat16"}
    begun = [*losses(CURVE[:1]), error("RuntimeError: no")]
    reference = [made, region, precision, *original()]
    assert judge(reference, begun, ours={"status": 1})["codes"] == ["TP310"]


def test_a_port_that_dies_after_it_made_other_parameters(judge):
    made = {"kind": "parameters", "optimizer": 0, "step": 0, "names": ["a", "b"], "sizes": [3, 4]}
    ended = [made | {"sizes": [3, 5]}, {"kind": "precision", "dtype": "float16"}, *losses(CURVE[:1]), error("no")]
    assert judge([made, *original()], ended, ours={"status": 1})["codes"].count("TP355") == 2


def test_a_port_that_needs_what_torch_npu_refuses(tmp_path):
    words = "RuntimeError: Only contiguous_format or preserve_format is supported."
    runs = []
    for name, events, ending in (("a", original(), {}), ("b", [error(words)], {"status": 1, "messages": words})):
        folder = tmp_path / name
        folder.mkdir()
        runs.append(write(folder, events, **ending))
    (hint,) = [one.hint for one in compare_recordings(*runs, on_npu=True).findings if one.code == "TP310"]
    assert "channels_last" in hint


def test_a_port_that_crashes(judge):
    data = judge(original(), list(losses(CURVE[:3])), ours={"status": -11})
    assert "signal SIGSEGV" in data["reason"]
    assert data["verdict"] == "does not hold"


def test_another_exit_status(judge):
    data = judge(original(), list(losses(CURVE)), theirs={"status": 3}, ours={"status": 0})
    assert data["verdict"] == "does not hold"
    assert "the port ends with exit status 0, the original with exit status 3" in data["reason"]


def test_a_rank_that_is_wrong(judge):
    data = judge((original(), original()), (list(losses(CURVE)), list(losses([2 * loss for loss in CURVE]))))
    assert data["verdict"] == "does not hold"
    assert f"rank 1, {SITE}" in data["reason"]


def test_replicas_that_part(judge):
    ends = [{"kind": "replica", "number": 0, "checksum": value} for value in (1.0, 1.5)]
    data = judge((original(), original()), tuple([*losses(CURVE), end] for end in ends))
    assert data["verdict"] == "does not hold"
    assert "the parameters of rank 1 are not those of rank 0" in data["reason"]


def opened(*cards):
    return {"kind": "cards", "cards": [{"device": f"npu:{one}", "number": f"{one}", "held": 3 << 20} for one in cards]}


def test_a_rank_on_another_ones_card_is_warned_of(judge):
    ranks = ([*losses(CURVE), opened(0), opened(0)], [*losses(CURVE), opened(0), opened(1, 0)])
    data = judge((original(), original()), ranks)
    assert (data["verdict"], data["codes"]) == ("holds", ["TP365"])


@pytest.mark.parametrize("cards", [((0,), (1,)), ((0, 1), (2, 3)), ((0,), (0,)), ((0, 1), (1,)[:0])])
def test_ranks_on_cards_of_their_own(judge, cards):
    data = judge((original(), original()), tuple([*losses(CURVE), opened(*some)] for some in cards))
    assert data["codes"] == []


def test_a_printed_metric(judge):
    runs = [original(), list(losses(CURVE))]
    data = judge(*runs, theirs={"output": "accuracy: 0.9"}, ours={"output": "accuracy: 0.8"})
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP306"])


# --- what is left open


@pytest.mark.parametrize(
    ("last", "says", "decide"),
    [
        ("ModuleNotFoundError: No module named 'wandb'", "the package wandb is missing here", "Install it"),
        ("ModuleNotFoundError: No module named 'triton'", "it needs triton, which is made for CUDA", "explain triton"),
        ("urllib.error.URLError: <urlopen error>", "it needs the network", "lie on this machine"),
        (
            "ValueError: Error initializing: environment variable RANK expected, but not set",
            "several processes",
            "--nproc",
        ),
        (
            "MisconfigurationException: You requested gpu: [0, 1]\n But your machine only has: [0]",
            "it asks for several devices",
            "--nproc 2",
        ),
        ("OSError: CUDA_HOME environment variable is not set", "a CUDA compiler", "record the original"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x.pt'", "a file that it reads", "Put the file"),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory", "too small", "smaller"),
        ("IndexError: index out of range in self", "exit status 1: IndexError", "num_embeddings"),
        ("ValueError: no good", "exit status 1: ValueError: no good", "run to its end"),
    ],
)
def test_an_original_that_fails_here(judge, last, says, decide):
    data = judge([error(last)], [], theirs={"status": 1}, ours={"status": 1})
    assert data["verdict"] == "undecided"
    assert "the original fails here before the first step" in data["reason"]
    assert says in data["reason"]
    assert decide in " ".join(data["decide"])


@pytest.mark.parametrize("side", ["theirs", "ours"])
def test_a_bug_of_our_own_is_not_held_against_anybody(judge, side):
    events = [*losses(CURVE[:2]), error("AttributeError: no hook") | {"ours": True}]
    runs = {"theirs": original(), "ours": list(losses(CURVE))} | {side: events}
    data = judge(runs["theirs"], runs["ours"], **{side: {"status": 1}})
    assert data["verdict"] == "undecided"
    assert "torchport's own recorder failed" in data["reason"]


@pytest.mark.parametrize(("code", "verdict"), [("507035", "does not hold"), ("100000", "undecided")])
def test_a_kernel_that_fails_is_not_the_recorder_s_fault(judge, code, verdict):
    """The recorder is only the first that waits for the device; what a call of its own refuses is its fault."""
    words = f"RuntimeError: ACL stream synchronize failed, error code:{code}"
    events = [*losses(CURVE[:2]), error(words) | {"ours": True}]
    data = judge(original(), events, ours={"status": 1, "messages": "there is an exception of aivec error"})
    assert data["verdict"] == verdict
    assert words in data["reason"]


def test_an_original_that_fails_after_some_steps_is_open_however_the_port_is(judge):
    failing = [*original(), error("ValueError: no")]
    data = judge(failing, [*losses(CURVE), error("ValueError: no")], theirs={"status": 1}, ours={"status": 1})
    assert data["verdict"] == "undecided"
    assert "after 20 steps" in data["reason"]


def test_no_step(judge):
    data = judge([], [])
    assert data["verdict"] == "undecided"
    assert "no step was reached" in data["reason"]


def test_a_reference_that_used_an_npu(judge):
    touched = {"kind": "npu", "touched": "it imported torch_npu"}
    data = judge([*losses(CURVE), touched], list(losses(CURVE)))
    assert data["verdict"] == "undecided"
    assert "used an NPU itself: it imported torch_npu" in data["reason"]


def test_what_the_virtual_npu_lacks_is_not_held_against_the_port(judge):
    words = "RuntimeError: 561003. The virtual NPU does not implement aclnnFoo yet. This says nothing about hardware."
    data = judge(original(), [*losses(CURVE[:2]), error(words)], ours={"status": 1, "messages": words})
    assert data["verdict"] == "undecided"
    assert "The virtual NPU does not implement aclnnFoo" in data["reason"]


@pytest.mark.parametrize("ending", [{"status": -9}, {"status": -15, "stopped": "memory"}])
def test_a_machine_that_is_too_small(judge, ending):
    data = judge(original(), list(losses(CURVE[:2])), ours=ending)
    assert data["verdict"] == "undecided"
    assert "too little memory" in data["reason"]


def test_a_port_that_is_slower_than_the_timeout(judge):
    data = judge(original(), list(losses(CURVE[:5])), ours={"status": -15, "stopped": "timeout"})
    assert data["verdict"] == "undecided"
    assert "the port did not finish within 7 s: 5 of 20 steps" in data["reason"]


def test_a_difference_weighs_more_than_a_timeout(judge):
    port = list(losses([2 * loss for loss in CURVE[:5]]))
    assert judge(original(), port, ours={"status": -15, "stopped": "timeout"})["verdict"] == "does not hold"


# What mnist of pytorch/examples leaves on two devices, and the same from one step on.
ROUNDING = (
    0,
    0,
    0,
    0,
    0,
    1.1e-7,
    0,
    7.1e-8,
    0,
    5.4e-6,
    9.6e-6,
    4.1e-3,
    1.6e-4,
    5.4e-3,
    3.7e-3,
    5e-2,
    1.9e-2,
    3e-2,
    9e-2,
    3e-2,
)


def off(errors):
    return list(losses([loss * (1 + error) for loss, error in zip(CURVE, errors, strict=False)]))


def test_rounding_that_training_amplifies(judge):
    printed = "loss: 0.28", "loss: 0.32"
    data = judge(original(), off(ROUNDING), theirs={"output": printed[0]}, ours={"output": printed[1]})
    assert (data["verdict"], data["codes"]) == ("undecided", ["TP349"])
    assert "up to step 10 the runs agree within 9.6e-06; from step 11 on the loss" in data["reason"]
    assert "--steps 11" in data["decide"][0]


@pytest.mark.parametrize(
    "errors",
    [
        (0, 1e-5, 1e-4, 1e-3, 1e-2),  # the first update is another one
        (1e-5, 1e-5, 1e-3, 1e-2),  # the weights or the data are
        (0, 0, 0, 0, 1e-3, 1e-2),  # out of nothing
        (0, 1e-7, 1e-7, 1e-7, 1e-3),  # too suddenly
        (0, 1e-7, 1e-5, 1e-3, *[2.0] * 16),  # in the mean as well
    ],
)
def test_what_rounding_does_not_explain(judge, errors):
    assert judge(original(), off([*errors, *[errors[-1]] * 20]))["verdict"] == "does not hold"


# --- what may pass


def test_equal_runs(judge):
    data = judge(original(), list(losses(CURVE)))
    assert (data["verdict"], data["codes"]) == ("holds", [])
    assert data["reason"] == (
        "20 optimizer steps compared one by one, float32; which faults it would notice was not measured: there is no control run"
    )
    assert data["evidence"][0] == {
        "launches": 200,
        "steps_with": 20,
        "loss": "npu",
        "parameters": "npu",
        "gradients": "npu",
        "outputs": "",
    }


def test_a_status_that_the_script_asks_for(judge):
    data = judge(original(), list(losses(CURVE)), theirs={"status": 3}, ours={"status": 3})
    assert data["verdict"] == "holds"


def test_a_reference_that_was_stopped_is_judged_as_far_as_it_came(judge):
    data = judge(original(), list(losses(CURVE)), theirs={"status": -15, "stopped": "timeout"})
    assert data["verdict"] == "holds"


def test_equal_settings(judge):
    both = [settings(0, lr=0.1, betas=[0.9, 0.999], maximize=False), settings(7, lr=0.05)]
    nearly = [settings(0, lr=0.1 * (1 + 1e-9), betas=[0.9, 0.999], maximize=False), settings(7, lr=0.05)]
    late = settings(30, lr=0.5)  # after the last step that both did
    assert judge([*original(), *both, late], [*losses(CURVE), *nearly])["verdict"] == "holds"


def test_two_runs_that_were_stopped_are_judged_as_far_as_both_came(judge):
    stopped = {"status": -15, "stopped": "timeout"}
    data = judge(original(), list(losses(CURVE[:15])), theirs=stopped, ours=stopped)
    assert (data["verdict"], data["steps"]["port"]) == ("holds", 15)


def test_two_optimizers_after_one_backward_pass(judge):
    def twice(events):
        for event in events:
            yield event
            if event["kind"] == "step":
                yield event

    data = judge(list(twice(original())), list(twice(losses(CURVE))))
    assert (data["verdict"], data["evidence"][0]["steps_with"]) == ("holds", 40)


def test_an_evaluation(judge):
    data = judge(list(calls([3.0, 4.0], "cpu", 0)), list(calls([3.0, 4.0])))
    assert (data["verdict"], data["steps"]["kind"]) == ("holds", "call")
    assert data["curves"][0]["what"] == "output"


def test_a_backward_pass_without_an_optimizer(judge):
    both = [[event for event in events if event["kind"] == "loss"] for events in (original(), losses(CURVE))]
    data = judge(*both)
    assert (data["verdict"], data["steps"]) == ("holds", {"kind": "backward", "reference": 20, "port": 20})


def test_what_a_port_evaluated_before_it_failed_is_no_step(judge):
    failing = [*calls([1.0]), next(losses(CURVE)), error("ValueError: no")]
    data = judge(original(), failing, ours={"status": 1})
    assert (data["steps"]["port"], data["evidence"][0]["steps_with"]) == (1, 1)


def test_a_first_loss_that_follows_the_update_of_another(tmp_path):
    def both(factor):
        for one, other in zip(losses(CURVE), losses(CURVE, site="train.py:30"), strict=True):
            yield one
            yield other | ({"value": other["value"] * factor} if "value" in other else {})

    runs = []
    for factor in (1, 2):
        folder = tmp_path / str(factor)
        folder.mkdir()
        runs.append(write(folder, list(both(factor))))
    assert "the update of another loss" in compare_recordings(*runs).findings[0].hint


def test_equal_replicas(judge):
    end = {"kind": "replica", "number": 0, "checksum": 1.0}
    data = judge((original(), original()), ([*losses(CURVE), end], [*losses(CURVE), end]))
    assert data["verdict"] == "holds"


def test_an_accuracy_printed_as_a_count_is_a_share(judge):
    runs = [original(), list(losses(CURVE))]
    data = judge(*runs, theirs={"output": "Accuracy: 9513/10000 (95%)"}, ours={"output": "Accuracy: 9514/10000 (95%)"})
    assert data["verdict"] == "holds"
    assert data["metrics"][0]["reference"] == 95.13


def test_an_original_that_is_told_an_npu():
    said = (
        "RuntimeError: Expected one of cpu, cuda, ipu, meta, privateuseone device type at start of device string: npu"
    )
    assert explain_failure(said)[0].startswith("it was told the NPU's device")


def test_an_original_with_two_ranks_on_one_card():
    said = "DistBackendError: NCCL error ... Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 0"
    cause, remedy = explain_failure(said)
    assert (cause, "set_device" in remedy) == ("it puts two ranks on one GPU, which NCCL refuses", True)


def test_unknown_words_have_no_cause():
    assert explain_failure("Segmentation fault") == ("", "")
    assert virtual_gap("RuntimeError: call aclnnAdd failed") == ""


# --- where training amplifies rounding, the original with noise is the yardstick

GROWING = [min(1e-7 * 10**step, 0.3) for step in range(20)]


def moved(by):
    return [loss * (1 + relative) for loss, relative in zip(CURVE, by, strict=True)]


@pytest.fixture
def judge_with_noise(tmp_path):
    def make(port, noisy):
        folders = [tmp_path / name for name in ("reference", "npu", "noise")]
        for folder in folders:
            folder.mkdir()
        runs = (original(), list(losses(port)), original(noisy))
        recordings = [write(folder, events) for folder, events in zip(folders, runs, strict=True)]
        result = compare_recordings(*recordings[:2], on_npu=True, control=recordings[2])
        return to_json(result.data) | {"codes": [finding.code for finding in result.findings]}

    return make


def test_a_port_that_is_further_away_than_rounding_takes_the_original(judge_with_noise):
    data = judge_with_noise(moved([30 * one if one > 1e-5 else one for one in GROWING]), moved(GROWING))
    assert data["verdict"] == "does not hold"
    assert "differs from step 3 on" in data["reason"]


def test_a_quiet_original_allows_no_more_than_before(judge_with_noise):
    data = judge_with_noise(moved([5e-4] * 20), moved([1e-7] * 20))
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP301"])


def test_a_port_that_goes_another_way_together_with_the_noise(judge_with_noise):
    data = judge_with_noise(moved([one * (-1) ** step for step, one in enumerate(GROWING)]), moved(GROWING))
    assert (data["verdict"], data["codes"]) == ("undecided", ["TP364"])
    assert "6 compared one by one, 14 by means that would notice 12 % of the loss" in data["reason"]
    (curve,) = data["curves"]
    assert curve["allowed"][:2] == [1e-5, pytest.approx(2e-5)]
    assert curve["allowed"][5:7] == [pytest.approx(0.2), "inf"]
    text = " ".join(render_comparison(from_json(Comparison, data)).split())
    assert "differs" not in text and "14 of them by means" in text


def test_means_count_where_steps_do_not(judge_with_noise):
    port = moved(GROWING[:8] + [1.5] * 12)
    assert judge_with_noise(port, moved(GROWING))["verdict"] == "does not hold"


def test_an_original_that_rounding_takes_away_at_once_decides_nothing(judge_with_noise):
    wild = [0.0, 0.05, *[0.3, -0.3] * 9]
    data = judge_with_noise(moved(wild), moved(wild))
    assert (data["verdict"], data["codes"]) == ("undecided", ["TP349", "TP364"])


def test_a_script_that_caught_its_exception_and_ended_itself(judge):
    words = "Traceback (most recent call last):\nRuntimeError: no kernel for complex64\nSet HYDRA_FULL_ERROR=1\n"
    seeds = {"kind": "seed", "of": "torch", "value": "0"}
    data = judge([seeds, *original()], [seeds, seeds], ours={"status": 1, "messages": words})
    assert data["reason"].endswith(
        "the port ends with exit status 1, the original with exit status 0; the script printed an exception: "
        "RuntimeError: no kernel for complex64"
    )
    assert "TP303" not in data["codes"]
    assert not data["chance"]
