"""The gated delta rule, token by token, against loops in float64."""

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, SIGNATURES, first_phase
from oracle import compare, random

NAME = "aclnnRecurrentGatedDeltaRule"


@pytest.mark.parametrize("gates", [(), ("g",), ("gk",), ("g", "gk")])
@pytest.mark.parametrize("guessed", [False, True])
@pytest.mark.parametrize("with_beta", [False, True])
def test_recurrent_gated_delta_rule(gates: tuple[str, ...], guessed: bool, with_beta: bool) -> None:
    """Two sequences of 2 and 3 tokens; a state for each token, of which the last right one's is the first."""
    lengths, key_heads, heads, width, value_width = [2, 3], 2, 4, 16, 8
    q, k = (random(5, key_heads, width, low=-0.3, high=0.3, seed=i).bfloat16() for i in (0, 1))
    v, state = (
        random(5, heads, value_width, seed=2).bfloat16(),
        random(7, heads, value_width, width, seed=3).bfloat16(),
    )
    beta = random(5, heads, low=0, high=1, seed=4).bfloat16()
    places, accepted = torch.tensor([6, 1, 4, 0, 3]), [2, 3] if guessed else [1, 1]
    decay = {
        "g": random(5, heads, low=-1, high=0, seed=5).float(),
        "gk": random(5, heads, width, low=-1, high=0, seed=6).float(),
    }
    expected, states = torch.zeros(5, heads, value_width, dtype=torch.float64), state.double()
    start = 0
    for length, last in zip(lengths, accepted, strict=True):
        own = states[places[start + last - 1]].clone()
        for token in range(start, start + length):
            for head in range(heads):
                s = own[head]
                if "g" in gates:
                    s = s * decay["g"][token, head].double().exp()
                if "gk" in gates:
                    s = s * decay["gk"][token, head].double().exp()
                key = k[token, head // 2].double()
                news = v[token, head].double() - s @ key
                if with_beta:
                    news = news * beta[token, head].double()
                own[head] = s + news.unsqueeze(1) * key
                expected[token, head] = own[head] @ (q[token, head // 2].double() * 0.25)
            states[places[token]] = own
        start += length
    options = {name: decay[name].npu() for name in gates}
    if guessed:
        options["num_accepted_tokens"] = torch.tensor(accepted).int().npu()
    if with_beta:
        options["beta"] = beta.npu()
    on_npu = state.npu()
    call = (q.npu(), k.npu(), v.npu(), on_npu)
    options |= {"actual_seq_lengths": torch.tensor(lengths).int().npu(), "ssm_state_indices": places.int().npu()}
    out, states_out = torch_npu.npu_recurrent_gated_delta_rule_functional(*call, scale=0.25, **options)
    compare(out, expected, torch.bfloat16, ulps=4)
    compare(states_out, states, torch.bfloat16, ulps=4)
    out = torch_npu.npu_recurrent_gated_delta_rule(*call, scale=0.25, **options)
    compare(out, expected, torch.bfloat16, ulps=4)
    compare(on_npu, states, torch.bfloat16, ulps=4)


def test_refusals() -> None:
    def f(*shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=torch.bfloat16, device="npu")

    call = {
        "query": f(3, 2, 16),
        "key": f(3, 2, 16),
        "value": f(3, 4, 8),
        "stateRef": f(3, 4, 8, 16),
        "out": f(3, 4, 8),
        "actualSeqLengths": torch.tensor([3]).int().npu(),
        "ssmStateIndices": torch.arange(3).int().npu(),
        "scaleValue": 1.0,
    }
    params = [param for _, param, _ in SIGNATURES[NAME]["params"]]
    assert first_phase(NAME, *(call.get(param) for param in params)) == (0, "")
    for param, wrong, words in (
        ("value", f(3, 3, 8), "multiple of its heads"),
        ("stateRef", f(3, 4, 16, 8), "stateRef has shape"),
        ("beta", f(3, 2), "beta has shape"),
        ("query", f(3, 2, 16).half(), "query has dtype float16"),
    ):
        status, message = first_phase(NAME, *({**call, param: wrong}.get(each) for each in params))
        assert status == INVALID_ARGUMENT and words in message, message


CHUNKED = "aclnnChunkGatedDeltaRule"


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("lengths", [[70, 0, 3], [1]])
def test_chunk_gated_delta_rule(gated: bool, lengths: list[int]) -> None:
    """Sequences longer than a chunk of CANN's, empty and of one token, each from a state of its own."""
    tokens, key_heads, heads, width, value_width = sum(lengths), 2, 4, 16, 8
    q, k = (random(tokens, key_heads, width, low=-0.3, high=0.3, seed=i).bfloat16() for i in (0, 1))
    v = random(tokens, heads, value_width, seed=2).bfloat16()
    state = random(len(lengths), heads, value_width, width, seed=3).bfloat16()
    beta = random(tokens, heads, low=0, high=1, seed=4).bfloat16()
    gate = random(tokens, heads, low=-1, high=0, seed=5).float() if gated else None
    expected, states = torch.zeros(tokens, heads, value_width, dtype=torch.float64), state.double()
    token = 0
    for own, length in zip(states, lengths, strict=True):
        for _ in range(length):
            for head in range(heads):
                s = own[head] * (1 if gate is None else gate[token, head].double().exp())
                key = k[token, head // 2].double()
                news = (v[token, head].double() - s @ key) * beta[token, head].double()
                own[head] = s + news.unsqueeze(1) * key
                expected[token, head] = own[head] @ (q[token, head // 2].double() * 0.25)
            token += 1
    transposed = state.npu().mT.contiguous().mT  # any strides
    out, last = torch_npu.npu_chunk_gated_delta_rule(
        q.npu(),
        k.npu(),
        v.npu(),
        beta=beta.npu(),
        initial_state=transposed,
        scale=0.25,
        actual_seq_lengths=torch.tensor(lengths).int().npu(),
        g=None if gate is None else gate.npu(),
    )
    compare(out, expected, torch.bfloat16, ulps=4)
    compare(last, states, torch.bfloat16, ulps=4)
    assert torch.equal(transposed.cpu(), state)


def test_refusals_of_chunks() -> None:
    def f(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.ones(shape, dtype=dtype, device="npu")

    call = {
        "query": f(3, 2, 16),
        "key": f(3, 2, 16),
        "value": f(3, 4, 8),
        "beta": f(3, 4),
        "initialState": f(1, 4, 8, 16),
        "actualSeqLengths": torch.tensor([3]).int().npu(),
        "gOptional": f(3, 4, dtype=torch.float32),
        "scaleValue": 1.0,
        "out": f(3, 4, 8),
        "finalState": f(1, 4, 8, 16),
    }
    params = [param for _, param, _ in SIGNATURES[CHUNKED]["params"]]
    assert first_phase(CHUNKED, *(call.get(param) for param in params)) == (0, "")
    for wrong, code, words in (
        ({"query": None}, INVALID_ARGUMENT, "query is null"),
        ({"query": f(3, 2, 16).half()}, INVALID_ARGUMENT, "query"),
        ({"value": f(3, 3, 8)}, 561002, "multiple of 2 heads"),
        ({"beta": f(3, 3)}, 561002, "beta"),
        ({"initialState": f(2, 4, 8, 16)}, 561002, "initialState"),
        ({"finalState": f(1, 4, 8, 16).float()}, 561002, "expected one dtype"),
        ({"initialState": f(1, 4, 8, 16).float(), "finalState": f(1, 4, 8, 16).float()}, 561002, "expected bfloat16"),
        ({"gOptional": f(3, 2, dtype=torch.float32)}, 561002, "gOptional"),
        ({"query": f(3, 2, 129), "key": f(3, 2, 129), "initialState": f(1, 4, 8, 129)}, 561002, "up to 128"),
    ):
        status, message = first_phase(CHUNKED, *({**call, **wrong}.get(param) for param in params))
        assert status == code and words in message, (wrong.keys(), message)
