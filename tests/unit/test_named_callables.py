"""Names in a pickle: callables that reach files, networks or code are refused, names that checkpoints hold stay inert."""

from __future__ import annotations

import argparse
import collections
import datetime
import enum
import functools
import operator
import pathlib
import pickle
import struct
import subprocess
import sys
import textwrap
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from torchport.checkpoints import reading
from torchport.checkpoints.tensors import Unreadable

HOSTILE = [
    # processes and code
    *("os system", "posix system", "nt system", "subprocess run", "_posixsubprocess fork_exec", "pty spawn"),
    *("builtins eval", "__builtin__ execfile", "builtins __import__", "builtins globals", "builtins open"),
    *("asyncio.subprocess create_subprocess_shell", "asyncio run", "concurrent.futures.process ProcessPoolExecutor"),
    *("threading Thread", "sched scheduler", "atexit register", "timeit timeit", "signal alarm", "platform popen"),
    *("code interact", "codeop compile_command", "code InteractiveInterpreter.runcode", "bdb Bdb.run", "pdb run"),
    *("cProfile run", "profile run", "trace Trace.run", "doctest testmod", "unittest.main TestProgram"),
    *("unittest.mock _importer", "types FunctionType", "types CodeType", "types ModuleType", "inspect getsource"),
    *("dataclasses make_dataclass", "typing get_type_hints", "gc get_objects", "sys settrace", "ctypes CDLL"),
    *("test.support.script_helper run_python_until_end", "pexpect spawn", "psutil Popen", "cffi FFI"),
    # modules and pickles
    *("importlib import_module", "imp load_source", "zipimport zipimporter", "runpy run_path", "pkgutil resolve_name"),
    *("pydoc locate", "marshal loads", "pickle loads", "_pickle load", "cPickle loads", "shelve open", "dill loads"),
    *("dill._dill _create_function", "cloudpickle loads", "cloudpickle.cloudpickle _make_function"),
    *("ray.cloudpickle loads", "joblib load", "joblib.numpy_pickle load", "yaml load", "yaml unsafe_load"),
    *("distutils.core run_setup", "setuptools.sandbox run_setup", "pip._internal main", "ensurepip bootstrap"),
    *("venv create", "pkg_resources run_script", "hydra.utils instantiate"),
    # files
    *("io open", "_io FileIO", "io open_code", "codecs open", "codecs decode", "_codecs decode", "shutil rmtree"),
    *("tempfile mkstemp", "glob glob", "fileinput input", "linecache getlines", "mmap mmap", "sqlite3 connect"),
    *("zipfile ZipFile", "tarfile open", "gzip open", "bz2 open", "lzma open", "dbm open", "posixpath exists"),
    *("pathlib Path.unlink", "pathlib PosixPath.read_text", "pathlib Path.write_bytes", "pathlib os.system"),
    *("logging FileHandler", "logging.config fileConfig", "logging.handlers SocketHandler", "xml.sax parse"),
    # networks
    *("socket create_connection", "ssl create_default_context", "http.client HTTPConnection", "urllib.request urlopen"),
    *("xmlrpc.client ServerProxy", "ftplib FTP", "smtplib SMTP", "telnetlib Telnet", "webbrowser open"),
    *("antigravity geohash", "socketserver TCPServer", "requests get", "requests.api get", "urllib3 PoolManager"),
    *("huggingface_hub hf_hub_download", "fsspec open", "boto3 client", "paramiko SSHClient", "aiohttp ClientSession"),
    # other callables
    *("operator attrgetter", "operator methodcaller", "_operator attrgetter", "functools reduce", "operator call"),
    *("_functools reduce", "random _os.system", "torch.serialization os.system", "torch.serialization os"),
    *("torch.nn.modules.module torch.load", "torch.nn functional.torch.hub.load", "models Net.__init__.__globals__"),
    *(
        "builtins object.__subclasses__",
        "torch._tensor_str np.load",
        "torch.utils.data.dataloader multiprocessing.Pool",
    ),
    *("torch.utils.data dataloader.python_multiprocessing.Process",),
    # PyTorch
    *("torch load", "torch.serialization load", "torch.serialization _legacy_load", "torch save", "torch compile"),
    *("torch from_file", "torch UntypedStorage.from_file", "torch FloatStorage._new_using_filename_cpu"),
    *("torch.hub load", "torch.hub load_state_dict_from_url", "torch.hub download_url_to_file"),
    *("torch.jit load", "torch.jit._serialization load", "torch.jit CompilationUnit", "torch._C import_ir_module"),
    *("torch._C PyTorchFileReader", "torch._C CompilationUnit", "torch.package PackageImporter"),
    *("torch.package.package_importer PackageImporter", "torch.utils.cpp_extension load_inline"),
    *("torch.utils.model_zoo load_url", "torch.utils.collect_env run", "torch.utils.benchmark Timer"),
    *("torch.utils.benchmark.utils.timer Timer", "torch.utils.tensorboard SummaryWriter", "torch.export load"),
    *("torch._inductor.codecache PyCodeCache.load", "torch._inductor.compile_worker main", "torch.ops load_library"),
    *("torch._ops _Ops.load_library", "torch.classes load_library", "torch._utils _import_dotted_name"),
    *("torch._dynamo.optimize x", "torch.distributed.run main", "torch.distributed.launcher.api elastic_launch"),
    *("torch.distributed.elastic.multiprocessing.api start_processes", "torch.distributed.rpc rpc_sync"),
    *("torch.distributed TCPStore", "torch.distributed init_process_group", "torch.multiprocessing spawn"),
    *("torch.multiprocessing.reductions rebuild_storage_filename", "torch.distributed.checkpoint load"),
    *("torch.distributed.checkpoint.filesystem FileSystemReader", "torch.fx.graph_module reduce_graph_module"),
    *("torch.fx.graph_module _forward_from_src", "torch.testing._internal.common_utils run_tests"),
    *("torch.utils._config_module ConfigModule.load_config", "torch_npu.utils.serialization load"),
    # NumPy, pandas and libraries beside PyTorch
    *("numpy load", "numpy fromfile", "numpy memmap", "numpy genfromtxt", "numpy loadtxt", "numpy fromregex"),
    *(
        "numpy save",
        "numpy DataSource",
        "numpy.lib.npyio load",
        "numpy.lib._npyio_impl load",
        "numpy.core.memmap memmap",
    ),
    *("numpy.core.multiarray fromfile", "numpy._core.multiarray fromfile", "numpy.testing._private.utils runstring"),
    *("numpy.f2py compile", "numpy.distutils.exec_command exec_command", "numpy.ctypeslib load_library"),
    *("numpy.lib.format open_memmap", "numpy.lib.utils safe_eval", "numpy ndarray.tofile"),
    *("pandas read_pickle", "pandas read_csv", "pandas.io.pickle read_pickle", "pandas.io.common get_handle"),
    *("pandas eval", "pandas.core.computation.eval eval", "pandas DataFrame.to_pickle"),
    *("PIL.Image open", "cv2 imread", "h5py File", "torchvision.io read_image", "transformers pipeline"),
    *("transformers AutoModel.from_pretrained", "pytorch_lightning LightningModule.load_from_checkpoint"),
    *("scipy.io loadmat", "sklearn.datasets fetch_openml", "sympy.parsing.sympy_parser parse_expr"),
]
HEALTHY = [
    # Python
    *("argparse Namespace", "collections OrderedDict", "collections defaultdict", "collections Counter"),
    *("collections deque", "collections.abc Mapping", "pathlib Path", "pathlib PosixPath", "pathlib WindowsPath"),
    *("pathlib PurePosixPath", "pathlib._local PosixPath", "datetime datetime", "datetime timedelta", "datetime date"),
    *("datetime timezone", "uuid UUID", "decimal Decimal", "fractions Fraction", "builtins set", "builtins bytearray"),
    *("builtins complex", "builtins slice", "builtins range", "builtins getattr", "builtins object", "builtins type"),
    *("__builtin__ set", "__builtin__ long", "_codecs encode", "copyreg _reconstructor", "copy_reg _reconstructor"),
    *("copyreg __newobj_ex__", "types SimpleNamespace", "functools partial", "operator itemgetter", "operator gt"),
    *(
        "itertools count",
        "io BytesIO",
        "_io BytesIO",
        "io StringIO",
        "logging getLogger",
        "logging Logger",
        "random Random",
    ),
    *("enum Enum", "enum IntEnum", "string Template", "re _compile", "typing Any", "typing List", "math sqrt"),
    *("configparser ConfigParser", "zoneinfo ZoneInfo._unpickle", "platform uname_result", "types GenericAlias"),
    # NumPy and its neighbours
    *("numpy dtype", "numpy ndarray", "numpy float64", "numpy.core.multiarray _reconstruct"),
    *("numpy.core.multiarray scalar", "numpy._core.multiarray _reconstruct", "numpy._core.multiarray scalar"),
    *("numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer", "numpy.random._pickle __randomstate_ctor"),
    *("numpy.random._pickle __bit_generator_ctor", "numpy.random._pickle __generator_ctor", "numpy.random PCG64"),
    *("numpy.random._mt19937 MT19937", "numpy.random.mtrand RandomState", "numpy._globals _NoValueType"),
    *("numpy less", "numpy.dtypes Float64DType", "numpy.ma.core _mareconstruct", "numpy mean", "numpy ndarray.mean"),
    *("pandas.core.frame DataFrame", "pandas.core.internals.managers BlockManager", "pandas._libs.internals x"),
    *(
        "pandas.core.indexes.base _new_Index",
        "scipy.sparse._csr csr_matrix",
        "sklearn.preprocessing._data StandardScaler",
    ),
    *("joblib.numpy_pickle NumpyArrayWrapper", "sklearn.tree._tree Tree", "PIL.Image Image"),
    # PyTorch
    *("torch float16", "torch bfloat16", "torch device", "torch Size", "torch dtype", "torch strided", "torch Tensor"),
    *("torch channels_last", "torch per_tensor_affine", "torch lt", "torch Generator", "torch FloatStorage"),
    *("torch.cuda FloatStorage", "torch.cuda FloatTensor", "torch.nn.parameter Parameter", "torch.nn.parameter Buffer"),
    *("torch.serialization _get_layout", "torch.storage _load_from_bytes", "torch.storage UntypedStorage"),
    *("torch.storage TypedStorage", "torch._tensor _rebuild_from_type_v2", "torch._utils _rebuild_sparse_tensor"),
    *(
        "torch._utils _rebuild_qtensor",
        "torch._utils _rebuild_device_tensor_from_numpy",
        "torch._utils _rebuild_tensor_v2",
    ),
    *("torch._utils _rebuild_meta_tensor_no_storage", "torch._utils _rebuild_wrapper_subclass", "torch._C Generator"),
    *("torch._C _VariableFunctions", "torch._C _VariableFunctions.lt", "torch._C _TensorMeta", "torch._C TensorType"),
    *("torch.nn.modules.linear Linear", "torch.nn.modules.container Sequential", "torch.nn.functional relu"),
    *(
        "torch.nn.modules.activation ReLU",
        "torch.nn.modules.loss CrossEntropyLoss",
        "torch.nn.utils.weight_norm WeightNorm",
    ),
    *("torch.nn.parallel.distributed DistributedDataParallel", "torch.nn.parallel.data_parallel DataParallel"),
    *(
        "torch.optim.adamw AdamW",
        "torch.optim.sgd SGD",
        "torch.optim.lr_scheduler LambdaLR",
        "torch.optim.swa_utils SWALR",
    ),
    *("torch.optim.lr_scheduler OneCycleLR._annealing_cos", "torch.amp.grad_scaler _refresh_per_optimizer_state"),
    *("torch.amp.grad_scaler GradScaler", "torch.cuda.amp.grad_scaler OptState", "torch.random get_rng_state"),
    *("torch.utils.data.dataloader DataLoader", "torch.utils.data._utils.collate default_collate"),
    *("torch.utils.data.sampler RandomSampler", "torch.utils.data.dataset TensorDataset", "torch.distributed ReduceOp"),
    *("torch.distributed.checkpoint.metadata Metadata", "torch.distributed.checkpoint.filesystem _StorageInfo"),
    *(
        "torch.distributed.fsdp.api ShardingStrategy",
        "torch.distributed.tensor DTensor",
        "torch.distributions.normal Normal",
        "torch.distributions.constraints half_open_interval",
    ),
    *(
        "torch._dynamo.eval_frame OptimizedModule",
        "torch.jit._pickle build_intlist",
        "torch.jit._pickle restore_type_tag",
    ),
    *(
        "torch.ao.quantization.observer MinMaxObserver",
        "torch.torch_version TorchVersion",
        "torch.profiler.profiler profile",
    ),
    *(
        "torch_npu.utils.storage _rebuild_npu_tensor",
        "torch.npu FloatStorage",
        "torch.fx.immutable_collections immutable_list",
    ),
    *("__torch__.torch.nn.modules.linear Linear",),
    # libraries of training and the user's own
    *("omegaconf.dictconfig DictConfig", "omegaconf.base ContainerMetadata", "omegaconf.nodes AnyNode"),
    *("transformers.training_args TrainingArguments", "transformers.trainer_utils IntervalStrategy"),
    *("transformers.trainer_utils HubStrategy", "transformers.models.bert.configuration_bert BertConfig"),
    *("pytorch_lightning.utilities.parsing AttributeDict", "lightning.fabric.utilities.data AttributeDict"),
    *("pytorch_lightning.callbacks.model_checkpoint ModelCheckpoint", "accelerate.utils.dataclasses DistributedType"),
    *("torchvision.transforms.transforms Compose", "torchvision.datasets.folder default_loader"),
    *("torchvision.models.resnet BasicBlock", "ultralytics.nn.tasks DetectionModel", "timm.models.resnet ResNet"),
    *("yacs.config CfgNode", "easydict EasyDict", "addict.addict Dict", "ruamel.yaml.comments CommentedMap"),
    *("models Net", "__main__ Config", "utils load_image", "data.reading read_rows", "datasets.coco load_sample"),
    *(
        "config cfg.optim",
        "code.models Net",
        "trace.networks Encoder",
        "profile.settings Settings",
        "models Outer.Inner",
    ),
    *("networks.code Encoder", "mymodels code", "src.io.images Reader", "models.io.http Client", "train glob"),
    *(
        "src.os_utils Paths",
        "pickles.loads Row",
        "requestsx Session",
        "torchx load",
        "test.models Net",
        "http.models Net",
    ),
]


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def name(said: str) -> bytes:
    """The name as pickles of protocol 4 have it, with which a name may have dots."""
    module, _, rest = said.partition(" ")
    return text(module) + text(rest) + b"\x93"


def attribute(owner: bytes, said: str) -> bytes:
    return name("builtins getattr") + b"(" + owner + text(said) + b"tR"


def archive(path: Path, value: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("a/data.pkl", b"\x80\x04}" + text("given") + value + b"s.")
    return path


@pytest.mark.parametrize("said", HOSTILE)
@pytest.mark.parametrize("called", [False, True])
def test_hostile_name_is_refused(tmp_path: Path, said: str, called: bool) -> None:
    path = archive(tmp_path / "x.pth", name(said) + (b"(" + text("x") + b"tR" if called else b""))
    with pytest.raises(Unreadable, match="it names ") as refused:
        reading.parse_checkpoint(path)
    assert f"it names {said.replace(' ', '.')}, which" in str(refused.value)


@pytest.mark.parametrize("said", HEALTHY)
def test_healthy_name_is_inert(tmp_path: Path, said: str) -> None:
    found = reading.parse_checkpoint(archive(tmp_path / "x.pth", name(said)))
    assert list({**found.values, **found.objects}) == ["given"]


def test_no_name_is_in_both_tables() -> None:
    assert len(set(HOSTILE) | set(HEALTHY)) == len(HOSTILE) + len(HEALTHY)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (attribute(name("torch.nn functional"), "__globals__"), "torch.nn.functional.__globals__"),
        (attribute(attribute(name("models Net"), "os"), "system"), "models.Net.os"),
        (attribute(attribute(name("torch.nn modules"), "torch"), "load"), "torch.nn.modules.torch"),
        (attribute(name("pathlib Path"), "read_text"), "pathlib.Path.read_text"),
        (attribute(name("torch.storage _load_from_bytes"), "__globals__"), "object.__globals__"),
        (attribute(name("collections OrderedDict"), "__subclasses__"), "object.__subclasses__"),
    ],
)
def test_getattr_to_a_hostile_name_is_refused(tmp_path: Path, value: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=f"it names .*{said}"):
        reading.parse_checkpoint(archive(tmp_path / "x.pth", value))


def test_name_within_the_bytes_of_a_storage_is_refused(tmp_path: Path) -> None:
    """torch.storage._load_from_bytes loads its argument: a checkpoint in the checkpoint, here twice."""

    def holds(inner: bytes) -> bytes:
        return name("torch.storage _load_from_bytes") + b"(B" + struct.pack("<I", len(inner)) + inner + b"tR"

    for said, refused in (("torch.nn.functional relu", False), ("posix system", True)):
        packed = archive(tmp_path / "inner.pth", name(said)).read_bytes()
        for inner in (packed, b"\x80\x04" + name(said) + b"."):
            path = archive(tmp_path / "x.pth", holds(b"\x80\x04" + holds(inner) + b"."))
            if refused:
                with pytest.raises(Unreadable, match=r"it names posix\.system"):
                    reading.parse_checkpoint(path)
            else:
                assert reading.parse_checkpoint(path).objects == {"given": "torch.storage._load_from_bytes"}


class Color(enum.Enum):
    RED = 1


class Flags(enum.IntFlag):
    A = 1
    B = 2


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_objects_that_python_and_numpy_pickle_are_read(tmp_path: Path, protocol: int) -> None:
    given = {
        "namespace": argparse.Namespace(
            path=Path("x"), pure=pathlib.PureWindowsPath("y"), when=datetime.datetime(2024, 5, 6, 7, 8)
        ),
        "counts": [collections.Counter("ab"), collections.deque([1]), collections.defaultdict(list, a=[1])],
        "enumerations": [Color.RED, Flags.A | Flags.B],
        "callables": [functools.partial(sorted, key=operator.itemgetter(0)), np.less, str.lower, len, dict.fromkeys],
        "arrays": [np.arange(3), np.float64(1), np.dtype("f4"), np.asfortranarray(np.ones((2, 2))), np.ma.ones(2)],
        "random": [np.random.RandomState(1), np.random.default_rng(1)],
        "bytes": [bytearray(b"x"), b"x"],
    }
    archived = tmp_path / "x.pth"
    with zipfile.ZipFile(archived, "w") as made:
        made.writestr("a/data.pkl", pickle.dumps(given, protocol))
    found = reading.parse_checkpoint(archived)
    assert "namespace" in found.objects


@pytest.mark.processes
def test_objects_that_torch_pickles_are_read(tmp_path: Path) -> None:
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    program = """
        import copyreg, pickle, sys, torch
        from torch import nn
        net = nn.Sequential(nn.Linear(2, 2), nn.TransformerEncoderLayer(4, 2), nn.LSTM(2, 2))
        optimizer = torch.optim.AdamW(net.parameters())
        given = {
            "operators": [torch.lt, torch.relu, torch.Tensor.add, nn.functional.relu, torch.nn.init.zeros_],
            "kinds": [torch.float16, torch.strided, torch.sparse_coo, torch.per_tensor_affine,
                      torch.device("cpu"), torch.Size([1]), torch.finfo(torch.float16).dtype, torch.__version__],
            "network": net, "optimizer": optimizer, "schedule": torch.optim.lr_scheduler.OneCycleLR(optimizer, 1, 9),
            "scaler": torch.amp.GradScaler("cpu"), "generator": torch.Generator(), "loss": nn.CrossEntropyLoss(),
            "data": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(2)), shuffle=True),
            "sparse": torch.eye(3).to_sparse(), "average": torch.optim.swa_utils.AveragedModel(net),
            "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
            "distribution": torch.distributions.Normal(torch.zeros(1), torch.ones(1)),
        }
        torch.save(given, sys.argv[1])
        pickle.dump(given | {"storage": torch.ones(2).untyped_storage()}, open(sys.argv[2], "wb"))
    """
    new, plain = tmp_path / "new.pth", tmp_path / "plain.pkl"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), new, plain],
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        check=True,
    )
    for path in (new, plain):
        assert {"network", "optimizer", "scaler"} <= set(reading.parse_checkpoint(path).objects)
