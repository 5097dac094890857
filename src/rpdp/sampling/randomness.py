"""The source of all randomness of a run: coins, uniforms, integers, Gaussian noise (privacy.md, rule 7).

There are two sources. `Secure` takes its key from the operating system and is for every real run. `Seeded` derives it
from a seed and a path of names and is for simulations, which make no privacy claim and say so. Everything else, from
key to noise, is the same code, so a test of one source is a test of the other.
"""

from __future__ import annotations

import hashlib
import operator
import os
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.sampling.fork_guard import forks
from rpdp.sampling.gaussian import LARGEST_VALUE, fill_normal, standard_normals
from rpdp.sampling.keystream import KEY_BYTES, Keystream, WordPool
from rpdp.sampling.noise_blocks import GaussianBlocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.sampling.gaussian import FloatArray

_POOLED_NORMALS = 1024  # arrays up to this size are filled from the pool
_LARGEST_STD = {np.dtype(kind): float(np.finfo(kind).max) / (LARGEST_VALUE + 1) for kind in (np.float32, np.float64)}


class Randomness(ABC):
    """A stream of independent random values. No bit of it is ever handed out twice.

    It is safe to share between threads. It cannot be copied or pickled: a copy would repeat its noise, and two
    releases with the same noise reveal the difference of the values they protect. Use a `child` instead.
    """

    is_simulation: ClassVar[bool]

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        keystream = self._keystream = Keystream(self._key())
        self._words = WordPool(keystream.words)
        self._normals = WordPool(lambda count: standard_normals(count, keystream))

    @abstractmethod
    def _key(self) -> bytes:
        """Return the key of this stream."""

    def _current_lock(self) -> threading.Lock:
        """Return the lock that protects this stream."""
        return self._lock

    @abstractmethod
    def child(self, *key: str | int) -> Randomness:
        """Return a stream for the part of the run named by `key`, independent of this one and of all other parts."""

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return `n` uniform 64-bit words: the raw material of everything else."""
        if n < 0:
            raise InputError(f"n={n!r} must not be negative")
        with self._current_lock():
            return self._words.take(n)

    def coin(self, probability: float) -> bool:
        """Return True with the given probability, rounded down to a multiple of 2⁻⁶⁴; 0 is never, 1 is always."""
        if not 0.0 <= probability <= 1.0:
            raise InputError(f"probability={probability!r} must be between 0 and 1")
        return int(self.words(1)[0]) < int(probability * 2.0**64)

    def uniforms(self, n: int) -> NDArray[np.float64]:
        """Return `n` uniform multiples of 2⁻⁵³ in [0, 1)."""
        values = (self.words(n) >> np.uint64(11)).astype(np.float64)
        values *= 2.0**-53
        return values

    def integers(self, high: int, n: int) -> NDArray[np.int64]:
        """Return `n` integers from 0 to `high` − 1, all exactly equally likely."""
        if not 1 <= high <= 2**63:
            raise InputError(f"high={high!r} must be between 1 and 2**63")
        # Redraw words above the largest multiple of `high`: the remainders would otherwise favour small values.
        largest = np.uint64(2**64 // high * high - 1)
        words = self.words(n).copy()
        while (redraw := np.flatnonzero(words > largest)).size:
            words[redraw] = self.words(redraw.size)
        return (words % np.uint64(high)).astype(np.int64)

    def fill_gaussian(self, out: FloatArray, std: float) -> None:
        """Overwrite `out` (float32 or float64, contiguous, any shape) with independent N(0, std²).

        The values are computed in float64 from uniforms of 63 bits (116 in the tails) and rounded once at the end. No
        value lies beyond 12.8 std. See `rpdp.sampling.gaussian` for what is exact and what is not.
        """
        flat = _flat(out)
        if not 0.0 <= std <= _LARGEST_STD[out.dtype]:
            raise InputError(f"std={std!r} must be finite, not negative, and not overflow {out.dtype}")
        with self._current_lock():
            if flat.size <= _POOLED_NORMALS:
                np.multiply(self._normals.take(flat.size), std, out=flat, casting="same_kind")
            else:
                fill_normal(flat, float(std), self._keystream)

    def gaussian_blocks(self) -> GaussianBlocks:
        """Return Gaussian noise in numbered blocks, independent of everything else from this stream.

        Its key is the next four words of this stream, so every call gives new noise.
        """
        return GaussianBlocks(self.words(KEY_BYTES // 8).tobytes())

    def __copy__(self) -> NoReturn:
        self._refuse_copy("copied")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self._refuse_copy("copied")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self._refuse_copy("pickled")

    def _refuse_copy(self, verb: str) -> NoReturn:
        raise PrivacyRefusal(
            f"{type(self).__name__} randomness cannot be {verb}: the copy would repeat its noise; "
            "make a new stream with child(...), or create one in the other process"
        )


class Secure(Randomness):
    """Randomness for real runs: an AES-256 keystream under a key from the operating system that nobody can choose.

    It cannot be seeded. A forked process gets a new key before its first draw, so that parent and child never share
    noise. Python cannot detect a virtual machine that is restored twice from one snapshot, and the stream would then
    repeat: start a new process after every restore.
    """

    is_simulation = False

    def __init__(self) -> None:
        super().__init__()
        self._process = forks.process()

    def _key(self) -> bytes:
        return os.urandom(KEY_BYTES)

    def child(self, *key: str | int) -> Secure:
        """Return this source itself: every draw is fresh, so all parts of a run are already independent.

        The names have no effect. In particular, requesting the same part twice never repeats noise.
        """
        _encode(key)
        return self

    def _current_lock(self) -> threading.Lock:
        if self._process != forks.process():
            with forks.restart:
                if self._process != forks.process():
                    self._start()
                    self._process = forks.process()  # last, so that other threads wait until the new key is in place
        return self._lock


class Seeded(Randomness):
    """Randomness for simulations: the key is a hash of the seed and of the names that lead to this stream.

    The same seed, names and sequence of calls give the same bits, in whatever order streams are made or used.
    `Seeded(7).child("a", 3)` and `Seeded(7).child("a").child(3)` are the same stream; making it twice gives the same
    bits twice. The random bits are the same on every machine. Gaussian values depend on the machine's logarithm and may
    differ in the last digit between processors.
    """

    is_simulation = True

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise InputError(f"seed={seed!r} must be a whole number that is not negative")
        self._path = hashlib.blake2b(digest_size=KEY_BYTES, person=b"rpdp.Seeded")
        self._path.update(_encode((int(seed),)))
        super().__init__()

    def _key(self) -> bytes:
        return self._path.digest()

    def child(self, *key: str | int) -> Seeded:
        """Return the stream whose path is that of this one followed by these names, from its beginning."""
        stream = Seeded.__new__(Seeded)
        stream._path = self._path.copy()
        stream._path.update(_encode(key))
        stream._start()
        return stream


def _encode(names: tuple[str | int, ...]) -> bytes:
    """A path as bytes. Different paths give different bytes, and longer paths extend shorter ones."""
    if not names:
        raise InputError("a child stream needs at least one name, for example child('round', 3)")
    encoded = b""
    for name in names:
        if isinstance(name, str):
            text = name.encode()
            # With its type and length in front, a name cannot be confused with a number or with several names.
            encoded += b"s%d:%b" % (len(text), text)
        else:
            encoded += b"i%d;" % operator.index(name)
    return encoded


def _flat(out: FloatArray) -> FloatArray:
    if out.dtype not in _LARGEST_STD or not out.flags.c_contiguous or not out.flags.writeable:
        raise InputError(
            f"out must be a contiguous, writeable array of float32 or float64, not {out.dtype} with strides "
            f"{out.strides}, writeable={out.flags.writeable}"
        )
    return out.reshape(-1)
