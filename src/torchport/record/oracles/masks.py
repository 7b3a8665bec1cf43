"""What a query of fused attention does not see, by `sparse_mode`, as torch_npu's documentation has it.

0: the mask that is given, within a band of `before` and `after` around the diagonal; 1: the mask alone. A triangle that
stands for any size is laid to the upper left (2) or the lower right corner (3) of the scores; 4: a band at the lower
right; 5: a mask that shows the first keys of each batch; 6: a triangle at the lower right that does (`prefix`). In a
pack, 7 is 3 for all sequences but the last, which has the band, and 8 is 2 for all but the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchport.record.operators.rebuilt import UnknownCallError

if TYPE_CHECKING:
    from torchport.record.oracles.attention import Given

DEFAULT, ALL, UPPER_LEFT, LOWER_RIGHT, BAND, PREFIX, SHORT_PREFIX, THEN_BAND, THEN_UPPER_LEFT = range(9)


def find_hidden_keys(torch: Any, given: Given, queries: int, keys: int, sequence: int | None) -> Any:
    """True where a key is not seen, for scores of [..., queries, keys]; None where all are. `sequence` is the number in
    a pack.

    Raises UnknownCallError for modes that are not known, and for queries that see nothing: no page says what they give.
    """
    if given.mask is None:  # the mode and the band say nothing without one
        return None
    mode = _mode(given, sequence)
    if mode in (DEFAULT, ALL, PREFIX):
        found = _of_sequence(given.mask, sequence)[..., :queries, :keys].to(torch.bool)
        if mode == DEFAULT:
            found = found | _band(torch, queries, keys, given.before, given.after, 0)
    else:
        far = queries + keys
        before, after = (given.before, given.after) if mode == BAND else (far, 0)
        found = _band(torch, queries, keys, before, after, 0 if mode == UPPER_LEFT else keys - queries)
        if mode == SHORT_PREFIX:
            found = found & (torch.arange(keys) >= _prefix(torch, given, sequence))
    if bool(found.all(-1).any()):
        raise UnknownCallError("a query sees no key, whose result documentation does not say")
    return found


def _mode(given: Given, sequence: int | None) -> int:
    mode = given.sparse
    if mode in (THEN_BAND, THEN_UPPER_LEFT) and sequence is not None:
        last = len(given.q_ends) - 1
        if mode == THEN_BAND:
            return BAND if sequence == last else LOWER_RIGHT
        return BAND if sequence == 0 else UPPER_LEFT
    if not DEFAULT <= mode <= SHORT_PREFIX:
        raise UnknownCallError(f"there is no reference for sparse_mode {mode}")
    return mode


def _of_sequence(mask: Any, sequence: int | None) -> Any:
    return mask[sequence] if sequence is not None and mask.dim() == 4 and mask.shape[0] > 1 else mask


def _band(torch: Any, queries: int, keys: int, before: int, after: int, shift: int) -> Any:
    away = torch.arange(keys)[None, :] - torch.arange(queries)[:, None] - shift
    return (away > after) | (away < -before)


def _prefix(torch: Any, given: Given, sequence: int | None) -> Any:
    """How many keys are always seen, of each batch."""
    found = torch.tensor([int(one) for one in given.prefix])
    return found.view(-1, 1, 1, 1) if sequence is None else found[sequence]
