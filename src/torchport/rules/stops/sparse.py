"""TP721: products of sparse tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.module import Module

# torch.sparse.mm and sampled_addmm are TP702's: they were measured.
_REFUSED = frozenset(
    f"torch.sparse.{name}" for name in ("addmm", "softmax", "log_softmax", "to_sparse_semi_structured")
)
_SPARSE_ADAM = ("torch.optim.SparseAdam", "torch.optim.sparse_adam.SparseAdam")
_MAKES = frozenset(f"torch.sparse_{layout}_tensor" for layout in ("coo", "csr", "csc", "bsr", "bsc", "compressed"))
_TO = frozenset({"to_sparse", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc"})
_KEEPS = frozenset({"to", "cuda", "npu", "coalesce", "t", "transpose", "float", "half", "requires_grad_", "detach"})
_PRODUCTS = frozenset(f"torch.{name}" for name in ("mm", "matmul", "bmm", "mv", "spmm", "addmm", "smm", "hspmm"))
_METHODS = frozenset({"mm", "matmul", "bmm", "mv", "spmm", "smm"})
_HINT = "Make it dense first (x.to_dense()), or write the product with index_select and index_add_."


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every product of what is seen to be sparse, and for SparseAdam."""
    for call in module.iter_nodes(ast.Call):
        name = module.resolve_name(call.func) or ""
        if name in _REFUSED:
            yield RULE.make_finding(module, call, f"torch_npu refuses {name}", hint=_HINT)
        elif name in _SPARSE_ADAM:
            yield RULE.make_finding(
                module,
                call,
                "SparseAdam fails in its first step on torch_npu 2.13.0",
                hint="Use `torchport run`, which mends it; torch.optim.SGD and Adagrad take the gradients of a sparse "
                "Embedding as it is, or leave out sparse=True.",
            )
        elif name in _PRODUCTS and any(is_sparse(module, arg) for arg in call.args):
            yield RULE.make_finding(module, call, f"torch_npu refuses {name} of a sparse tensor", hint=_HINT)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS and not name:
            message = f"torch_npu refuses {call.func.attr} of a sparse tensor"
            for _ in [arg for arg in (call.func.value, *call.args) if is_sparse(module, arg)][:1]:
                yield RULE.make_finding(module, call, message, hint=_HINT)
    for product in module.iter_nodes(ast.BinOp):
        if isinstance(product.op, ast.MatMult) and (
            is_sparse(module, product.left) or is_sparse(module, product.right)
        ):
            yield RULE.make_finding(module, product, "torch_npu refuses the product of a sparse tensor", hint=_HINT)


def is_sparse(module: Module, node: ast.expr, depth: int = 4) -> bool:
    """Whether the value is seen to be made as a sparse tensor."""
    if depth == 0:
        return False
    if isinstance(node, ast.Call):
        if module.resolve_name(node.func) in _MAKES:
            return True
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in _TO:
                return True
            return node.func.attr in _KEEPS and is_sparse(module, node.func.value, depth - 1)
    if isinstance(node, ast.Name):
        # a parameter that is made sparse under its own name has no value of its own
        values = [binding.value for binding in module.names.find_bindings(node) if binding.value is not None]
        return bool(values) and all(is_sparse(module, value, depth - 1) for value in values)
    return False


RULE = Rule(
    code="TP721",
    title="products of sparse tensors",
    safety=Safety.REPORT,
    severity=Severity.ERROR,
    why="torch_npu makes, moves, adds and coalesces sparse tensors, but has no product with one, no softmax of one and "
    "no fallback to the CPU for them.",
    reference="https://docs.pytorch.org/docs/stable/sparse.html",
    words=(b"sparse",),
    check=check_module,
    rewrites=(),
    reports=(
        "import torch\ny = x.to_sparse() @ z\n",
        "import torch\na = torch.sparse_coo_tensor(i, v, (2, 2)).cuda()\ny = torch.mm(a, z)\n",
        "import torch\no = torch.optim.SparseAdam(p)\n",
    ),
    ignores=("import torch\ny = (x.to_sparse() * 2).coalesce().to_dense() @ z\n",),
)
