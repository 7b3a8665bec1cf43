"""Names in a pickle that no checkpoint has a reason to hold: callables that reach programs, files, networks or code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torchport.checkpoints.tensors import Unreadable


def _split(words: str) -> frozenset[str]:
    return frozenset(words.split())


PROGRAMS, FILES, NETWORK = "runs programs or code", "reaches files", "opens connections"
CODE, CALLABLES = "loads code or pickles", "leads to other callables"
# Each row is refused with everything below it. Leading underscores are left out: _io is io.
ROWS = {
    PROGRAMS: """
        os posix nt sys subprocess posixsubprocess popen2 commands.getoutput commands.getstatusoutput pty pexpect
        ptyprocess psutil multiprocessing asyncio concurrent threading thread sched.scheduler atexit timeit
        platform.popen signal.alarm signal.signal signal.setitimer signal.raise_signal signal.pthread_kill
        weakref.finalize code.interact code.InteractiveInterpreter code.InteractiveConsole code.compile_command codeop
        bdb pdb cProfile lsprof profile.run profile.runctx profile.Profile trace.Trace trace.main doctest unittest
        test.support idlelib lib2to3 rlcompleter IPython ipykernel ctypes cffi resource.setrlimit faulthandler
        site.addsitedir site.addpackage interpreters xxsubinterpreters typing.get_type_hints
        dataclasses.make_dataclass uuid._get_command_stdout uuid._popen builtins.apply builtins.breakpoint
        builtins.compile builtins.eval builtins.exec builtins.execfile builtins.exit builtins.help builtins.input
        builtins.quit sympy.parsing sympy.core.sympify sympy.utilities numpy.f2py numpy.distutils numpy.testing
        pandas.core.computation torch.testing torch.distributed.run torch.distributed.launch
        torch.distributed.launcher torch.distributed.elastic torch.multiprocessing torch.utils.benchmark
        torch.utils.bottleneck torch.utils.collect_env torch.utils.cpp_extension torch.utils.hipify torch._inductor
        torch._dynamo torch._functorch torch._export torch._strobelight
        """,
    FILES: """
        io pyio codecs shutil tempfile glob.glob glob.iglob glob.glob0 glob.glob1 fileinput linecache filecmp mmap
        fcntl dbm sqlite3 zipfile tarfile gzip bz2 lzma pathlib posixpath ntpath genericpath netrc xml h5py
        builtins.open logging.FileHandler logging.basicConfig logging.config fsspec s3fs gcsfs numpy.memmap
        numpy.core.memmap numpy._core.memmap numpy.DataSource numpy.lib.npyio numpy.lib._npyio_impl numpy.lib.format
        numpy.lib._format_impl numpy.lib._datasource numpy.compat.py3k pandas.io torch.utils.tensorboard
        torch._C.PyTorchFileReader torch._C.PyTorchFileWriter torch.distributed.checkpoint.state_dict_loader
        torch.distributed.checkpoint.state_dict_saver torch.distributed.checkpoint.FileSystemReader
        torch.distributed.checkpoint.FileSystemWriter torch.distributed.checkpoint.filesystem
        torch.distributed.checkpoint.hf_storage torch.distributed.checkpoint.quantized_hf_storage
        torch.distributed.checkpoint._consolidate_hf_safetensors torch.utils.data.datapipes.iter.filelister
        torch.utils.data.datapipes.iter.fileopener torch.utils.data.datapipes.utils torch.PyTorchFileReader
        torch.PyTorchFileWriter torch.utils._content_store torch.cuda.gds
        """,
    NETWORK: """
        socket ssl socketserver http.client http.server http.cookiejar urllib urllib2 urllib3 requests httplib httpx
        aiohttp xmlrpc xmlrpclib ftplib smtplib poplib imaplib nntplib telnetlib webbrowser antigravity wsgiref
        paramiko boto3 botocore huggingface_hub gdown wget logging.handlers torch.hub torch.utils.model_zoo
        torch.distributed.rpc torch.distributed.TCPStore torch.distributed.FileStore
        torch.distributed.init_process_group torch.distributed.distributed_c10d.init_process_group
        torch._C._distributed_c10d.TCPStore torch._C._distributed_c10d.FileStore torch.distributed.rendezvous
        """,
    CODE: """
        importlib imp runpy zipimport zipapp pkgutil modulefinder pydoc py_compile compileall marshal pickle cPickle
        pickletools shelve dill cloudpickle ray.cloudpickle joblib jsonpickle yaml distutils setuptools pkg_resources
        pip ensurepip venv virtualenv hydra.utils hydra._internal numpy.ctypeslib torch.serialization torch.jit
        torch.package torch._C.CompilationUnit torch._C.ScriptModule torch.fx.graph_module torch.classes torch.ops
        torch._C._aoti torch.distributed.nn.jit
        """,
    CALLABLES: """
        inspect gc types functools operator.attrgetter operator.methodcaller operator.call builtins.globals
        builtins.locals builtins.vars builtins.setattr builtins.delattr
        """,
}
REFUSED = {row: kind for kind, rows in ROWS.items() for row in _split(rows)}
# Below a row, and in real checkpoints. The bytes that _load_from_bytes would load are looked into (`saved`).
KEPT = _split(
    """
    io.BytesIO io.StringIO functools.partial functools.partialmethod types.SimpleNamespace types.GenericAlias
    types.UnionType types.NoneType xml.etree.ElementTree.Element joblib.numpy_pickle.NumpyArrayWrapper
    pathlib.Path pathlib.PosixPath pathlib.WindowsPath pathlib.PurePath pathlib.PurePosixPath pathlib.PureWindowsPath
    pathlib._local.Path pathlib._local.PosixPath pathlib._local.WindowsPath pathlib._local.PurePath
    pathlib._local.PurePosixPath pathlib._local.PureWindowsPath
    torch.serialization._get_layout torch.storage._load_from_bytes torch._dynamo.eval_frame.OptimizedModule
    torch.fx.graph_module.GraphModule torch.jit._pickle.build_intlist torch.jit._pickle.build_tensorlist
    torch.jit._pickle.build_doublelist torch.jit._pickle.build_boollist torch.jit._pickle.build_tensor_from_id
    torch.jit._pickle.restore_type_tag torch.distributed.checkpoint.filesystem._StorageInfo
    torch.distributed.checkpoint.filesystem._StoragePrefix torch.distributed.checkpoint.filesystem.SerializationFormat
    """
)
# Their functions go by many paths (numpy.core.multiarray.fromfile, torch._C.import_ir_module): the verb tells them.
LIBRARIES = _split(
    """
    torch torch_npu torchvision torchaudio torchtext torchdata numpy pandas scipy sklearn skimage imageio PIL cv2 zarr
    pyarrow transformers diffusers tokenizers safetensors accelerate peft timm lightning pytorch_lightning
    lightning_fabric omegaconf tensorflow keras jax flax mlflow wandb onnx onnxruntime monai
    """
)
VERB = re.compile(
    r"^(?:open|eval|run)(?![a-z])|"
    r"(?:^|_)(?:(?:loads?(?!_state_dict|_from_state_dict)|reads?|imread|imwrite|imports?|from_file|from_pretrained|"
    r"from_url|filename|safe_eval|exec|compile|spawn|system|popen|save|write|dumps?|download|fetch|pipeline)(?![a-z])|"
    r"loadtxt|loadmat|savetxt|savez|savemat|runstring|urlopen|urlretrieve|fromfile|fromregex|genfromtxt|memmap|tofile|"
    r"to_(?:csv|excel|feather|file|hdf|html|json|parquet|pickle|sql)$)"
)
ABBREVIATED = {"builtin__": "builtins", "np": "numpy", "pd": "pandas"}
LOWERCASE_CLASSES = _split("device dtype finfo iinfo ndarray ufunc")
# Modules that others have among their names: torch.serialization.os.
IMPORTED = _split("builtins ctypes importlib io os pickle posix runpy shutil socket subprocess sys")
INTERNAL = _split(
    """
    __base__ __bases__ __builtins__ __class__ __closure__ __code__ __dict__ __getattribute__ __globals__ __import__
    __loader__ __mro__ __spec__ __subclasses__
    """
)


def refuse_callables(named: Iterable[tuple[str, str]]) -> None:
    """Raise Unreadable if one of the names (module, name) harms the machine of the user who loads the file."""
    for module, name in sorted(named):
        if kind := find_kind(module, name):
            raise Unreadable(
                f"it names {module[:80]}.{name[:80]}, which {kind} and which torch.load(weights_only=False) would "
                "call. No checkpoint of a model does: do not load it"
            )


def find_kind(module: str, name: str) -> str | None:
    """Return why no checkpoint names this, or None for a name that may stay.

    A name may lead on from its module: that of torch.serialization, "os.system" is os.system, too.
    """
    steps = name.split(".")
    if not INTERNAL.isdisjoint(steps):
        return CALLABLES
    path = _spell([*module.split("."), *steps])
    if ".".join(path) in KEPT:
        return None
    if len(steps) == 1:
        return _find_row(path) or (CALLABLES if name.lstrip("_") in IMPORTED else None)
    kinds = (_find_row(_spell(steps[start:])) for start in range(len(steps) - 1))
    through_modules = path[0] in LIBRARIES and not _is_class(steps[0])
    return _find_row(path) or next(filter(None, kinds), CALLABLES if through_modules else None)


def _spell(path: Sequence[str]) -> list[str]:
    root = path[0].lstrip("_")
    return [ABBREVIATED.get(root, root), *path[1:]]


def _find_row(path: list[str]) -> str | None:
    for end in range(len(path), 0, -1):
        if kind := REFUSED.get(".".join(path[:end])):
            return kind
    return "loads, saves or runs its arguments" if path[0] in LIBRARIES and VERB.search(path[-1]) else None


def _is_class(name: str) -> bool:
    return name.lstrip("_")[:1].isupper() or name in LOWERCASE_CLASSES
