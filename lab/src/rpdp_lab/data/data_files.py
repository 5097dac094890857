"""Where data files are found, and that they are the right ones.

A file is looked for below the directory named by the environment variable `RPDP_DATA`, then below `data/` in
the cache directory (`RPDP_CACHE`, else `$XDG_CACHE_HOME/rpdp`, else `~/.cache/rpdp`). Its SHA-256 is checked
once per process. There is no download code: fetch the file from the source that its `DataFile` names, for
example

    mkdir -p ~/.cache/rpdp/data/mnist && cd ~/.cache/rpdp/data/mnist
    curl -O https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz

and the loader will find and check it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from rpdp.errors import InputError

DATA_VARIABLE = "RPDP_DATA"
CACHE_VARIABLE = "RPDP_CACHE"

_UCI = "https://archive.ics.uci.edu/dataset/45/heart+disease (doi 10.24432/C52P4X, CC BY 4.0)"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/ (CC BY-SA 3.0)"
_CIFAR = (
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz (its .bin files are read as they are; "
    "the .npz files hold the same images, re-packed by this project)"
)
_SNLI = (
    "this project's data folder: re-packed from https://nlp.stanford.edu/projects/snli/ (CC BY-SA 4.0), "
    "pairs without a gold label left out, training pairs a subset"
)
_MINILM = (
    "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2 (Apache 2.0; "
    "model.safetensors is read as it is, model.fp16.safetensors is the same file cast to half precision)"
)


class DataError(InputError):
    """A data file is missing or damaged; the message names it, the places looked at and where to get it."""


@dataclass(frozen=True)
class DataFile:
    """A file below the data directory, the digests it may have, and where it comes from."""

    path: str
    source: str
    sha256: tuple[str, ...]


def _register(source: str, digests: dict[str, tuple[str, ...]]) -> dict[str, DataFile]:
    return {path: DataFile(path, source, sha256) for path, sha256 in digests.items()}


DATA_FILES: dict[str, DataFile] = {
    **_register(
        _UCI,
        {
            "heart_disease/processed.cleveland.data": (
                "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
            ),
            "heart_disease/processed.hungarian.data": (
                "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
            ),
            "heart_disease/processed.switzerland.data": (
                "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
            ),
            "heart_disease/processed.va.data": ("e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",),
        },
    ),
    **_register(
        _MNIST,
        {
            "mnist/train-images-idx3-ubyte.gz": (
                "ae46c4f260ac4905871204038b01a6c0a113631ad2d5a23f68961fc8b88747cb",  # gzip wrapper made again
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",  # as published
            ),
            "mnist/train-labels-idx1-ubyte.gz": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",),
            "mnist/t10k-images-idx3-ubyte.gz": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",),
            "mnist/t10k-labels-idx1-ubyte.gz": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",),
        },
    ),
    **_register(
        _CIFAR,
        {
            "cifar10/data_batch_1.npz": ("f62112e760d571f450d0eb51781748ea77a40cbd640fe08f4cb8532e3cd467d7",),
            "cifar10/data_batch_2.npz": ("db957896d8df5dff511f55a04e3c7d8e49d3897f266e45018a07e77c67379709",),
            "cifar10/test_batch.npz": ("96280b85ae92f1b1c094537d62cf9c46a860f8d8baaaec58aa2ff13eee07baac",),
            "cifar10/data_batch_1.bin": ("cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",),
            "cifar10/data_batch_2.bin": ("a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",),
            "cifar10/test_batch.bin": ("8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",),
        },
    ),
    **_register(
        _SNLI,
        {
            "snli/train_subset.jsonl.gz": ("ac071a23cf2eb0709985cba0f5d29ede954977ed6d0668f52ff46cdc28569bdf",),
            "snli/dev.jsonl.gz": ("1cb9b0f7c2ff6a4090a909b1a7e8962b57e11caba3f174fbe2c14157826a8edf",),
            "snli/test.jsonl.gz": ("3767f946165d2762c392350bd069788c075691c8cf5216401ea53ca85a04d450",),
        },
    ),
    **_register(
        _MINILM,
        {
            "models/all-MiniLM-L6-v2/config.json": (
                "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            ),
            "models/all-MiniLM-L6-v2/vocab.txt": ("07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",),
            "models/all-MiniLM-L6-v2/model.fp16.safetensors": (
                "5ba0032aefec27c763b2d9c8912eeec19529d4efdab9a71a9756e8056ba8f2e0",
            ),
            "models/all-MiniLM-L6-v2/model.safetensors": (
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
        },
    ),
}

_verified: set[tuple[Path, int, int]] = set()


def cache_directory() -> Path:
    """The directory for files that can be made or fetched again; it need not exist."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rpdp"


def find_file(*paths: str) -> Path:
    """The first of the given registered files that is there, with its checksum verified.

    Raises:
        DataError: No such file, or its content is not the registered one.
    """
    files = [DATA_FILES[path] for path in paths]
    for directory in _data_directories():
        for file in files:
            if (found := directory / file.path).is_file():
                _verify(found, file)
                return found
    raise DataError(_missing(files))


def _data_directories() -> list[Path]:
    given = os.environ.get(DATA_VARIABLE)
    return [*([Path(given)] if given else []), cache_directory() / "data"]


def _missing(files: list[DataFile]) -> str:
    names = " or ".join(file.path for file in files)
    places = " and ".join(str(directory) for directory in _data_directories())
    hint = "" if os.environ.get(DATA_VARIABLE) else f", or set {DATA_VARIABLE} to the directory that holds it"
    return (
        f"data file {names} not found; looked in {places}. Get it from {files[0].source} "
        f"and put it at {cache_directory() / 'data' / files[0].path}{hint}"
    )


def _verify(found: Path, file: DataFile) -> None:
    status = found.stat()
    key = (found.resolve(), status.st_size, status.st_mtime_ns)
    if key in _verified:
        return
    with found.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest not in file.sha256:
        raise DataError(
            f"data file {found} is damaged: {status.st_size} bytes with sha256 {digest}, expected "
            f"{' or '.join(file.sha256)}. Delete it and get it again from {file.source}"
        )
    _verified.add(key)
