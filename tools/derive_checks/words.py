"""The words that the sources and the pages have for dtypes and chips, and the sets made of them.

A set of dtypes is an integer with a bit per dtype, a set of ranks one with a bit per rank: joining and narrowing
them is what the interpreter does all day.
"""

from __future__ import annotations

from collections.abc import Iterable

# In the order in which a row lists them.
NAMES = {
    "DT_BOOL": "bool",
    "DT_UINT8": "u8",
    "DT_INT8": "i8",
    "DT_UINT16": "u16",
    "DT_INT16": "i16",
    "DT_UINT32": "u32",
    "DT_INT32": "i32",
    "DT_UINT64": "u64",
    "DT_INT64": "i64",
    "DT_FLOAT16": "f16",
    "DT_BF16": "bf16",
    "DT_FLOAT": "f32",
    "DT_DOUBLE": "f64",
    "DT_COMPLEX32": "c32",
    "DT_COMPLEX64": "c64",
    "DT_COMPLEX128": "c128",
    "DT_FLOAT4_E1M2": "f4e1m2",
    "DT_FLOAT4_E2M1": "f4e2m1",
    "DT_FLOAT8_E4M3FN": "f8e4m3",
    "DT_FLOAT8_E5M2": "f8e5m2",
    "DT_FLOAT8_E8M0": "f8e8m0",
    "DT_HIFLOAT8": "hif8",
    "DT_INT2": "i2",
    "DT_INT4": "i4",
    "DT_QINT8": "qint8",
    "DT_QINT32": "qint32",
    "DT_STRING": "string",
    "DT_UINT1": "u1",
    "DT_RESOURCE": "resource",
}
# The same types as the pages call them.
PAGE_NAMES = {
    name.removeprefix("DT_"): word for name, word in NAMES.items() if word not in ("resource", "qint8", "qint32")
} | {"FLOAT32": "f32", "BFLOAT16": "bf16", "FLOAT64": "f64", "FP16": "f16", "FP32": "f32"}
ORDER = list(NAMES.values())
BIT = {name: 1 << place for place, name in enumerate(NAMES)}
BIT["DT_FLOAT32"] = BIT["DT_FLOAT"]
BIT["DT_BFLOAT16"] = BIT["DT_BF16"]
# One bit more stands for every dtype that has no name here, so that excluding all names leaves something.
EVERY_DTYPE = (1 << (len(NAMES) + 1)) - 1
NAMED_DTYPES = EVERY_DTYPE >> 1

FLOATING = sum(BIT[name] for name in ("DT_FLOAT16", "DT_BF16", "DT_FLOAT", "DT_DOUBLE"))
COMPLEX = sum(BIT[name] for name in ("DT_COMPLEX32", "DT_COMPLEX64", "DT_COMPLEX128"))
INTEGRAL = sum(BIT[f"DT_{sign}INT{bits}"] for sign in ("", "U") for bits in (8, 16, 32, 64))

# Ranks are told apart up to this one, which stands for itself and all above.
HIGHEST_RANK = 24
EVERY_RANK = (1 << (HIGHEST_RANK + 1)) - 1

# Of an attribute these values are told apart: the small ones that enumerations have, halves between those, as the
# constants that numbers are compared with are whole, and steps to what lies far out.
FAR = [48, 64, 96, 128, 256, 512, 1024, 2048, 4096, 1 << 16, 1 << 32, 1 << 48]
SAMPLES = sorted([*range(-4, 33), -0.5, 0.5, 1.5, -64, -(1 << 32), -(1 << 48), *FAR])
EVERY_SAMPLE = (1 << len(SAMPLES)) - 1

CHIPS = {"910B": ("ASCEND910B", "DAV_2201"), "910A": ("ASCEND910", "DAV_1001"), "310P": ("ASCEND310P", "DAV_2002")}
# The order of the enumeration, which the sources compare by. ASCEND950 is another name of ASCEND910_95.
SOC_VERSIONS = ["ASCEND910", "ASCEND910B", "ASCEND910_93", "ASCEND910_95", "ASCEND910E", "ASCEND310", "ASCEND310P"]
SOC_VERSIONS += ["ASCEND310B", "ASCEND310C", "ASCEND610LITE", "KIRINX90", "KIRIN9030", "ASCEND350"]


def words(dtypes: int) -> str:
    """A set of dtypes as a row writes it."""
    return " ".join(word for place, word in enumerate(ORDER) if dtypes >> place & 1)


def dtypes_of(names: Iterable[str]) -> int:
    """The set of dtypes with these names (DT_...); what has no name here counts as the bit of the nameless."""
    result = 0
    for name in names:
        result |= BIT.get(name, EVERY_DTYPE ^ NAMED_DTYPES)
    return result


def in_order(listed: Iterable[str]) -> str:
    """Words of dtypes without repetition, in the order of a row."""
    unique = set(listed)
    return " ".join(word for word in ORDER if word in unique)


def ranks_where(holds: Iterable[bool]) -> int:
    """The set of the ranks for which the condition holds, given for 0, 1, 2 ..."""
    return sum(1 << rank for rank, held in enumerate(holds) if held)


def highest(ranks: int) -> int | None:
    """The highest rank of a set; None where there is no limit."""
    return None if not ranks or ranks >> HIGHEST_RANK else ranks.bit_length() - 1


def ranges(samples: int, *, whole: bool) -> str:
    """What of an attribute is accepted, "0..2 27" or "1..": whole numbers, or with 0<..: what is more than 0.

    An end that lies between two samples far out is not known, and open.
    """
    wanted = [(value, samples >> place & 1) for place, value in enumerate(SAMPLES)]
    if whole:
        wanted = [(value, accepted) for value, accepted in wanted if float(value).is_integer()]
    said = []
    start = 0
    while start < len(wanted):
        if not wanted[start][1]:
            start += 1
            continue
        end = start
        while end + 1 < len(wanted) and wanted[end + 1][1]:
            end += 1
        before = wanted[start - 1][0] if start else None
        after = wanted[end + 1][0] if end + 1 < len(wanted) else None
        said.append(one_range(wanted[start][0], wanted[end][0], before, after, whole))
        start = end + 1
    return " ".join(said)


def one_range(low: float, high: float, before: float | None, after: float | None, whole: bool) -> str:
    """The range of accepted samples between two that are refused, or of which there are none."""
    if whole:
        first = "" if before is None or low - before > 1 else f"{low}"
        last = "" if after is None or after - high > 1 else f"{high}"
    else:
        first = "" if before is None else f"{low}" if float(low).is_integer() else f"{before}<"
        last = "" if after is None else f"{high}" if float(high).is_integer() else f"<{after}"
    return first if first == last else f"{first}..{last}"
