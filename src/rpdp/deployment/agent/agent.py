"""The agent's mind: from one request to one answer, whoever asks and in whatever order.

The server is not trusted. The agent decodes strictly, hands what is well formed to the `Silo`, which keeps the promise,
and answers with an update, "sat-out", or one fixed word of refusal; everything else goes to the silo's own log. No
refusal depends on the content of a record, and from the charge of a round on whatever goes wrong (a model that runs out
of memory, a full disk, a late end) looks like sitting it out. Answers leave at a public time (privacy.md, rule 14), and
the next request has its turn at one: who asks meanwhile must not learn from it when training was over.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rpdp.errors import InputError, PrivacyRefusal, Reason, RpdpError
from rpdp.federation.fingerprint import model_fingerprint
from rpdp.federation.frames import Frame, refused
from rpdp.federation.messages import Announcement, Update
from rpdp.federation.silo import TooLate
from rpdp.ledger.store.chain import PublicHead
from rpdp.planning import PublicPlan
from rpdp.training import SMALLEST_CLIP_NORM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from torch import Tensor, nn

    from rpdp.federation.silo import Silo, TrainedRound
    from rpdp.sampling import Randomness
    from rpdp.training import PerRecordLoss

LOG = logging.getLogger("rpdp.silo")

_FACTS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "hello": {},
    "admit": {"run": str, "plan": dict, "head": (dict, type(None))},
    "round": {"run": str, "plan": str, "round": int, "correction": bool, "head": (dict, type(None))},
}
_HEAD = {"ledger": str, "count": int, "head": str}
_LONGEST_NAME = 100

SMALLEST_MICRO_BATCH = 256
"""With pieces of one record a step takes a hundred times as long."""

_TRAINED_AT = 0.9
"""A round must be trained at this part of `release_after`: the rest is for storing it."""


@dataclass(frozen=True)
class AllowedModel:
    """A model of the silo's own installation that it agrees to train, and the loss that goes with it."""

    module: nn.Module
    loss: PerRecordLoss
    fingerprint: str = field(init=False)
    parameters: int = field(init=False)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        trained = [value for value in self.module.parameters() if value.requires_grad]
        object.__setattr__(self, "fingerprint", model_fingerprint(self.module))
        object.__setattr__(self, "parameters", sum(value.numel() for value in trained))
        object.__setattr__(self, "bytes", sum(value.numel() * value.element_size() for value in trained))


@dataclass(frozen=True)
class Timing:
    """When answers leave.

    Attributes:
        release_after: Seconds after its turn has come at which the answer to a request leaves; a round that is not
            trained at nine tenths of that sits out. None: when they are ready, and the time they take is not covered.
        clock: Seconds that only grow.
        sleep: Waits.
    """

    release_after: float | None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def left(self, began: float) -> float | None:
        """Seconds to train in a turn that began then; None where it may take any time."""
        return None if self.release_after is None else max(began + _TRAINED_AT * self.release_after - self.clock(), 0.0)

    def in_time(self, began: float) -> bool:
        """Whether there is any left."""
        return self.left(began) != 0.0

    def hold(self, began: float) -> None:
        """Wait until the answer is due; one that is late waits for the next multiple of that time."""
        if self.release_after is not None:
            passed = self.clock() - began
            multiple = max(1, int(np.ceil(passed / self.release_after)))
            self.sleep(max(multiple * self.release_after - passed, 0.0))


class Agent:
    """Answers for one silo.

    Guarantee: whatever frames arrive, in any order and from any number of connections, no record spends more than its
    budget, nothing leaves but updates that were charged and stored before, heads of public events, and fixed words.

    Args:
        silo: With its account: a production ledger, or an account for simulations in tests.
        models: What may be trained here, by fingerprint; code never comes from a server.
        randomness: Makes the randomness of an admitted run: `Secure`, or a seeded one in tests.
        timing: When answers leave.
        closed_runs: Runs that this silo takes no part in any more.
        patience: Seconds that a request waits for its turn before it is refused as busy.
        threads: For torch. With one, a seeded silo gives the same bits as in the simulator.
    """

    def __init__(
        self,
        silo: Silo,
        models: Sequence[AllowedModel],
        randomness: Callable[[], Randomness],
        timing: Timing,
        *,
        closed_runs: Sequence[str] = (),
        patience: float = 60.0,
        threads: int = 1,
    ) -> None:
        if not models:
            raise InputError(f"silo {silo.name}: no model is allowed; name at least one")
        self.silo = silo
        self._models = {model.fingerprint: model for model in models}
        self._randomness = randomness
        self._timing = timing
        self._closed = frozenset(closed_runs)
        self._patience = patience
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._served: set[str] = set()
        self._trainer = ThreadPoolExecutor(1, "training", torch.set_num_threads, (threads,))
        self._training: Future[TrainedRound] | None = None
        _warm_up()

    def close(self) -> None:
        """Stop: a round that is being trained sits out, charged."""
        self._stopping.set()
        self._trainer.shutdown(wait=True, cancel_futures=True)

    @property
    def models(self) -> list[AllowedModel]:
        """What may be trained here."""
        return list(self._models.values())

    @property
    def most_payload(self) -> int:
        """The largest payload that any request of an allowed model has: the model and a correction."""
        return 2 * max(model.bytes for model in self._models.values())

    def answer(self, request: Frame) -> Frame:
        """The answer to a request, at the time at which it is due."""
        try:
            facts = _checked(request)
            if request.kind == "hello":
                simulated = self.silo.account.is_simulation
                return Frame({"kind": "hello", "silo": self.silo.name, "is_simulation": simulated})
            if facts["run"] in self._closed:
                raise PrivacyRefusal(f"run {facts['run']!r} is closed in this silo's settings", Reason.CLOSED_RUN)
            with self._my_turn() as began:
                answer = self._decide(request, facts, began)
                self._timing.hold(began)
                return answer
        except PrivacyRefusal as refusal:
            LOG.warning("refused (%s): %.500s", refusal.reason, refusal)
            return refused(Reason.FAILED if refusal.reason is Reason.REFUSED else refusal.reason)

    @contextmanager
    def _my_turn(self) -> Iterator[float]:
        """When the turn began. It ends at a public time, or with a refusal, which takes no time."""
        if not self._turn.acquire(timeout=self._patience):
            raise PrivacyRefusal("another request is being answered", Reason.BUSY)
        began = self._timing.clock()
        try:
            yield began
        finally:
            late = self._training
            if late is None or late.done():
                self._turn.release()
            else:
                threading.Thread(target=self._end_turn_after, args=(late, began), daemon=True).start()

    def _end_turn_after(self, late: Future[TrainedRound], began: float) -> None:
        """The answer has left, the last step of its round goes on: the turn ends at the next public time after it."""
        wait([late])
        self._timing.hold(began)
        self._turn.release()

    def _decide(self, request: Frame, facts: dict[str, Any], began: float) -> Frame:
        try:
            if request.kind == "admit":
                return self._admit(facts["run"], facts["plan"], facts["head"])
            return self._round(facts, request.payload, began)
        except PrivacyRefusal:
            raise
        except Exception:  # its text stays here, and nothing has left
            LOG.exception("refused (%s)", Reason.FAILED)
            return refused(Reason.FAILED)

    def _admit(self, run: str, plan: dict[str, Any], head: dict[str, Any] | None) -> Frame:
        public = _plan(plan)
        model = self._models.get(public.model_fingerprint or "")
        if model is None:
            raise PrivacyRefusal(
                f"the plan is for model {public.model_fingerprint!r}; allowed are {', '.join(self._models)}",
                Reason.MODEL,
            )
        if public.recipe.micro_batch < SMALLEST_MICRO_BATCH:
            raise PrivacyRefusal(
                f"micro_batch={public.recipe.micro_batch} is below {SMALLEST_MICRO_BATCH}: training would take so long "
                "for each drawn record that being in time would tell how many were drawn",
                Reason.POLICY,
            )
        if public.clip_norm < SMALLEST_CLIP_NORM:
            raise PrivacyRefusal(
                f"clip_norm={public.clip_norm} is below {SMALLEST_CLIP_NORM}, where norms in float32 could be made to "
                "vanish; multiply the loss and the clip norm by the same number",
                Reason.POLICY,
            )
        statuses = self.silo.account.status().runs
        going = [one.run for one in statuses if one.announced < one.rounds and one.run not in {run, *self._closed}]
        if going:
            raise PrivacyRefusal(
                f"run {run!r} is asked for while run {going[0]!r} is not over; if that was given up, add it to "
                "closed_runs in the silo's settings",
                Reason.OTHER_RUN,
            )
        self._acknowledge(run, head)
        self.silo.admit(run, public, model.module, model.loss, self._randomness())
        self._served.add(run)
        LOG.info("admitted run %r, plan %s…", run, public.fingerprint[:12])
        return self._told("admitted")

    def _round(self, facts: dict[str, Any], payload: bytes, began: float) -> Frame:
        announcement = _announcement(facts, payload, self.silo.model_values)
        self._acknowledge(facts["run"], facts["head"])
        begun = self.silo.begin(announcement)
        update = begun if isinstance(begun, Update) else None
        if begun is True:
            update = self._train(announcement, began)
        LOG.info("run %r, round %d: %s", announcement.run, announcement.round, "released" if update else "sat out")
        if update is None:
            return self._told("sat-out")
        return self._told("update", payload=update.to_bytes())

    def _train(self, announcement: Announcement, began: float) -> Update | None:
        """The update of a charged round; None if it could not be made or stored in time, and then it never is."""

        def in_time() -> bool:
            return self._timing.in_time(began) and not self._stopping.is_set()

        try:
            self._training = self._trainer.submit(self.silo.train, announcement, in_time)
            return self.silo.finish(self._training.result(self._timing.left(began)))
        except (TooLate, TimeoutError):
            LOG.warning("round %d was not trained in time; it sits out, charged: see release_after", announcement.round)
        except Exception:  # whatever it is, it may come from a record, and must look like sitting out
            LOG.exception("round %d could not be trained; it sits out, charged", announcement.round)
        return None

    def _acknowledge(self, run: str, head: dict[str, Any] | None) -> None:
        """Refuse to go on with a ledger that is older than what the server has seen of it."""
        if head is None:
            self._require_unused(run)
            return
        try:
            self.silo.account.acknowledge(_head(head))
        except PrivacyRefusal as error:
            raise PrivacyRefusal(str(error), Reason.HEAD) from None

    def _require_unused(self, run: str) -> None:
        """A server that knows no head could not tell an old state of a ledger from the newest.

        Of a run that this process has admitted none is needed: it has held the ledger since.
        """
        known = [one.run for one in self.silo.account.status().runs if one.run != run or run not in self._served]
        if self.silo.account.public_head() is not None and known:
            raise PrivacyRefusal(
                f"the ledger has runs ({', '.join(known)}) of which the server knows nothing; an older state could "
                "not be told from the newest. Let the server have the heads.json of those runs",
                Reason.HEAD,
            )

    def _told(self, kind: str, payload: bytes = b"", **facts: object) -> Frame:
        head = self.silo.account.public_head()
        return Frame({"kind": kind, "head": None if head is None else asdict(head), **facts}, payload)


def _checked(request: Frame) -> dict[str, Any]:
    """The facts of a request, all of them there, of the right type, and no others."""
    wanted = _FACTS.get(request.kind)
    if wanted is None or set(request.facts) != {"kind", *wanted}:
        raise PrivacyRefusal(f"a request {request.kind!r} with {sorted(request.facts)}", Reason.MALFORMED)
    for name, kind in wanted.items():
        value = request.facts[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise PrivacyRefusal(f"a request {request.kind} with {name} of {type(value).__name__}", Reason.MALFORMED)
    if request.kind != "round" and request.payload:
        raise PrivacyRefusal(f"a request {request.kind} with {len(request.payload):,} bytes", Reason.MALFORMED)
    for name in wanted:
        text = request.facts[name]
        if isinstance(text, str) and not (0 < len(text) <= _LONGEST_NAME and text.isprintable()):
            raise PrivacyRefusal(f"{name}={text[:_LONGEST_NAME]!r} is no name", Reason.MALFORMED)
    return request.facts


def _plan(values: dict[str, Any]) -> PublicPlan:
    try:
        return PublicPlan.from_json(json.dumps(values))
    except PrivacyRefusal as error:
        raise PrivacyRefusal(str(error), Reason.PLAN) from None
    except (RpdpError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise PrivacyRefusal(f"not a public plan: {error}", Reason.MALFORMED) from None


def _head(values: dict[str, Any]) -> PublicHead:
    """A head of some events; a server that knows of none has no head to send."""
    if values.keys() != _HEAD.keys() or any(type(values[name]) is not kind for name, kind in _HEAD.items()):
        raise PrivacyRefusal("not the head of a ledger")
    if values["count"] < 1:
        raise PrivacyRefusal(f"the head of {values['count']} events is none")
    return PublicHead(**values)


def _announcement(facts: dict[str, Any], payload: bytes, own: Tensor) -> Announcement:
    vectors = 2 if facts["correction"] else 1
    wanted = vectors * own.numel() * own.element_size()
    if len(payload) != wanted:
        raise PrivacyRefusal(f"a round with {len(payload):,} bytes of numbers, not {wanted:,}", Reason.SHAPE)
    numbers = np.frombuffer(payload, dtype=f"<f{own.element_size()}").reshape(vectors, -1).copy()
    values = [torch.from_numpy(vector) for vector in numbers]
    correction = values[1] if facts["correction"] else None
    return Announcement(facts["run"], facts["plan"], facts["round"], values[0], correction)


def _warm_up() -> None:
    """The first step of an optimiser loads much of torch: seconds that would make the first round of an agent late."""
    values = torch.zeros(1)
    values.grad = torch.zeros(1)
    torch.optim.SGD([values], lr=1.0).step()
