"""aclSetAclOpExecutorRepeatable: one first phase, many launches, also with other memory, until aclDestroyAclOpExecutor."""

from __future__ import annotations

import ctypes

import torch

from torchport import vnpu

opapi = ctypes.CDLL(str(vnpu.library_directory() / "libopapi.so"))
ascendcl = ctypes.CDLL(str(vnpu.library_directory() / "libascendcl.so"))
ascendcl.aclGetRecentErrMsg.restype = ctypes.c_char_p
for _name in ("aclCreateTensor", "aclCreateTensorList"):
    getattr(opapi, _name).restype = ctypes.c_void_p
INNER_NULLPTR, INVALID_ARGUMENT = 561103, 161002


def memory(value: float) -> torch.Tensor:
    made = torch.full((3, 4), float(value)).npu()
    torch.npu.synchronize()
    return made


def described(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    sizes, strides = (ctypes.c_int64 * 2)(3, 4), (ctypes.c_int64 * 2)(4, 1)
    address = ctypes.c_void_p(tensor.data_ptr() if tensor is not None else 0)
    rank = ctypes.c_uint64(2)
    return ctypes.c_void_p(opapi.aclCreateTensor(sizes, rank, 0, strides, ctypes.c_int64(0), 2, sizes, rank, address))


class Product:
    """The executor of out = x * y, planned once; its descriptors live as long."""

    def __init__(self, *tensors: torch.Tensor | None) -> None:
        self.described = [described(each) for each in tensors]
        self.executor, workspace = ctypes.c_void_p(), ctypes.c_uint64()
        status = opapi.aclnnMulGetWorkspaceSize(*self.described, ctypes.byref(workspace), ctypes.byref(self.executor))
        assert status == 0, ascendcl.aclGetRecentErrMsg()

    def repeatable(self) -> None:
        assert opapi.aclSetAclOpExecutorRepeatable(self.executor) == 0

    def launch(self) -> int:
        stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
        return int(opapi.aclnnMul(None, ctypes.c_uint64(0), self.executor, stream))

    def move(self, index: int, to: torch.Tensor) -> int:
        return int(
            opapi.aclSetTensorAddr(
                self.executor, ctypes.c_size_t(index), self.described[index], ctypes.c_void_p(to.data_ptr())
            )
        )

    def end(self) -> None:
        assert opapi.aclDestroyAclOpExecutor(self.executor) == 0
        for each in self.described:
            opapi.aclDestroyTensor(each)


def test_it_is_launched_with_what_is_there_then() -> None:
    x, out = memory(1), memory(0)
    product = Product(x, x, out)
    product.repeatable()
    for value in (2.0, 3.0, 5.0):
        x.fill_(value)
        torch.npu.synchronize()
        assert product.launch() == 0
        assert (out.cpu() == value * value).all()
    # Destroyed with launches in the queue, which run.
    for _ in range(20):
        assert product.launch() == 0
    product.end()
    assert (out.cpu() == 25).all()


def test_what_is_queued_keeps_the_memory_that_it_was_launched_with() -> None:
    """As MindSpore does: the same executor for each call of an operator, with other addresses."""
    inputs, outs = [memory(value) for value in range(40)], [memory(-1) for _ in range(40)]
    product = Product(None, inputs[1], None)  # planned before there is memory, as its graphs are
    product.repeatable()
    assert product.launch() == INVALID_ARGUMENT
    assert b"described without memory" in ascendcl.aclGetRecentErrMsg()
    for i, (x, out) in enumerate(zip(inputs, outs, strict=True)):
        assert product.move(0, x) == product.move(2, out) == 0
        if i == 20:
            assert product.move(1, inputs[2]) == 0
        assert product.launch() == 0
    torch.npu.synchronize()
    product.end()
    assert [out[0, 0].item() for out in outs] == [i * (1 if i < 20 else 2) for i in range(40)]


def test_on_two_streams() -> None:
    x, out = memory(3), memory(0)
    product = Product(x, x, out)
    product.repeatable()
    other = torch.npu.Stream()
    for _ in range(50):
        assert product.launch() == 0
        with torch.npu.stream(other):
            assert product.launch() == 0
    torch.npu.synchronize()
    product.end()
    assert (out.cpu() == 9).all()


def test_one_of_a_list_is_moved() -> None:
    x, y, out = memory(1), memory(2), torch.zeros(6, 4).npu()
    torch.npu.synchronize()
    tensors = (ctypes.c_void_p * 2)(described(x), described(x))
    listed = ctypes.c_void_p(opapi.aclCreateTensorList(tensors, ctypes.c_uint64(2)))
    sizes, strides = (ctypes.c_int64 * 2)(6, 4), (ctypes.c_int64 * 2)(4, 1)
    whole = ctypes.c_void_p(
        opapi.aclCreateTensor(
            sizes,
            ctypes.c_uint64(2),
            0,
            strides,
            ctypes.c_int64(0),
            2,
            sizes,
            ctypes.c_uint64(2),
            ctypes.c_void_p(out.data_ptr()),
        )
    )
    executor, workspace = ctypes.c_void_p(), ctypes.c_uint64()
    assert (
        opapi.aclnnCatGetWorkspaceSize(
            listed, ctypes.c_int64(0), whole, ctypes.byref(workspace), ctypes.byref(executor)
        )
        == 0
    )
    assert opapi.aclSetAclOpExecutorRepeatable(executor) == 0

    def move(number: int) -> int:
        address = ctypes.c_void_p(y.data_ptr())
        return int(
            opapi.aclSetDynamicTensorAddr(executor, ctypes.c_size_t(0), ctypes.c_size_t(number), listed, address)
        )

    assert move(2) == INVALID_ARGUMENT
    assert move(1) == 0
    stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
    assert opapi.aclnnCat(None, ctypes.c_uint64(0), executor, stream) == 0
    assert opapi.aclDestroyAclOpExecutor(executor) == 0
    assert out.cpu()[:, 0].tolist() == [1, 1, 1, 2, 2, 2]
    opapi.aclDestroyTensorList(listed)
    opapi.aclDestroyTensor(whole)


def test_one_that_was_never_launched_is_freed() -> None:
    x = memory(1)
    product = Product(x, x, x)
    product.repeatable()
    product.repeatable()
    product.end()
    Product(x, x, x).end()


def test_what_is_refused() -> None:
    x, stranger = memory(1), described(memory(2))
    product = Product(x, x, x)
    assert opapi.aclSetAclOpExecutorRepeatable(None) == INNER_NULLPTR
    assert b"parameter executor is null" in ascendcl.aclGetRecentErrMsg()
    assert product.move(0, x) == INVALID_ARGUMENT
    assert b"not repeatable" in ascendcl.aclGetRecentErrMsg()
    product.repeatable()
    here = ctypes.c_void_p(x.data_ptr())
    assert opapi.aclSetTensorAddr(product.executor, ctypes.c_size_t(0), None, here) == INNER_NULLPTR
    assert opapi.aclSetTensorAddr(product.executor, ctypes.c_size_t(0), stranger, here) == INVALID_ARGUMENT
    assert b"none that the executor was made with" in ascendcl.aclGetRecentErrMsg()
    host = ctypes.create_string_buffer(64)
    assert opapi.aclSetTensorAddr(product.executor, ctypes.c_size_t(0), product.described[0], host) != 0
    assert b"is not device memory" in ascendcl.aclGetRecentErrMsg()
    product.end()
    opapi.aclDestroyTensor(stranger)
