"""The agent of a silo: from one request to one answer, whoever asks and in whatever order.

The server is not trusted. The agent decodes requests strictly and hands what is well formed to the `Silo`, which keeps
the privacy guarantee. It answers with an update, "sat-out", or a fixed reason for a refusal; all details go to the
silo's own log. No refusal depends on the content of a record, and once a round is charged every failure (out of memory,
a full disk, training that takes too long) looks like sitting out. Answers leave at a public time (privacy.md, rule 14).
The next request gets its turn at a public time too: otherwise it would show when training ended.

An agent carries several runs at the same time, up to a limit of the silo file. They share its one ledger, and their
requests take turns (`turns`): one round is trained at a time.
"""

from __future__ import annotations

import copy
import errno
import logging
import threading
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rpdp.deployment.agent.agent_journal import AgentJournal
from rpdp.deployment.agent.request_decoding import checked_facts, decode_announcement, decode_head, decode_plan
from rpdp.deployment.agent.turns import Turns
from rpdp.errors import InputError, PrivacyRefusal, Reason, RpdpError
from rpdp.federation.fingerprint import model_fingerprint
from rpdp.federation.frames import Frame, refused
from rpdp.federation.handshake import own_greeting
from rpdp.federation.messages import Update
from rpdp.federation.policy import CONCURRENT_RUNS
from rpdp.federation.silo import TooLate
from rpdp.federation.silo_outlook import silo_outlook
from rpdp.federation.training_process import TrainingProcess
from rpdp.training import SMALLEST_CLIP_NORM, FlatModel, make_kernel, require_value_independent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from rpdp.deployment.agent.release_timing import Timing
    from rpdp.federation.messages import Announcement
    from rpdp.federation.silo import Silo
    from rpdp.planning import PublicPlan
    from rpdp.sampling import Randomness
    from rpdp.training import Kernel, PerRecordLoss, Records

LOG = logging.getLogger("rpdp.silo")

SMALLEST_MICRO_BATCH = 256
"""With micro-batches of one record a step takes a hundred times as long."""

_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_SHORTEST_PATIENCE = 60.0
_TURNS_WAITED = 2
"""A request waits this many turns of every run before it is refused as busy."""

_NO_RUN = ""
"""Requests for runs that are not carried here take turns as one run. No run has an empty name."""


@dataclass(frozen=True)
class AllowedModel:
    """A model, with its loss, that the silo has installed and agrees to train."""

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


def checked_kernel(model: AllowedModel, records: Records) -> Kernel:
    """The kernel of a model; refused unless model and loss are fit for records of these shapes and types.

    Only shapes and types are used. So a model that an agent has can be admitted, whatever the records hold.
    """
    kernel = make_kernel(FlatModel(copy.deepcopy(model.module)), model.loss, records)
    require_value_independent(model.module, model.loss, records)
    return kernel


class Agent:
    """Answers requests for one silo.

    Guarantee: whatever frames arrive, in any order and from any number of connections, no record spends more than its
    budget, and nothing leaves but updates that were charged and stored first, heads of public events, and fixed words.

    Args:
        silo: The silo, with its account: a production ledger, or an account for simulations in tests.
        models: The models that may be trained here; code never comes from a server.
        randomness: Creates the randomness of an admitted run: `Secure`, or a seeded source in tests.
        timing: When answers leave.
        closed_runs: Runs in which this silo no longer takes part.
        max_concurrent_runs: How many unfinished runs are carried at the same time; another one is refused. Runs that
            were admitted before continue.
        patience: Seconds that a request waits for its turn before it is refused as busy; by default a minute, or two
            turns of every run if that is longer.
        threads: Threads for torch. With one, a seeded silo gives the same bits as in the simulator.
        trainer: Where rounds are trained; by default a new process, which inherits what this one has open.
        evaluated: The fingerprint of the model that may be evaluated; None for any that may be trained.
        journal: Notes answers after they have left their turn, for the steward and for monitoring; by default nowhere.
    """

    def __init__(
        self,
        silo: Silo,
        models: Sequence[AllowedModel],
        randomness: Callable[[], Randomness],
        timing: Timing,
        *,
        closed_runs: Sequence[str] = (),
        max_concurrent_runs: int = CONCURRENT_RUNS,
        patience: float | None = None,
        threads: int = 1,
        trainer: TrainingProcess | None = None,
        evaluated: str | None = None,
        journal: AgentJournal | None = None,
    ) -> None:
        if not models and not silo.purposes.answered:
            raise InputError(f"silo {silo.name}: no model is allowed, and no request; name at least one")
        self.silo = silo
        self._models = {model.fingerprint: model for model in models}
        self._randomness = randomness
        self._timing = timing
        self._evaluated = evaluated
        self._journal = journal or AgentJournal(silo.name)
        self._closed = frozenset(closed_runs)
        self._most_runs = max_concurrent_runs
        turns = _TURNS_WAITED * max_concurrent_runs * (timing.release_after or 0.0)
        self._patience = max(_SHORTEST_PATIENCE, turns) if patience is None else patience
        self._turns = Turns()
        self._stopping = threading.Event()
        self._served: set[str] = set()
        if trainer is None:
            kernels = {model.fingerprint: checked_kernel(model, silo.records) for model in models}
            trainer = TrainingProcess(
                kernels,
                silo.records,
                randomness,
                threads=threads,
                training=silo.training,
                purposes=silo.purposes,
            )
        self._trainer = silo.trainer = trainer
        silo.is_timed = timing.release_after is not None

    def close(self) -> None:
        """Stop. A round that is being trained sits out, charged."""
        self._stopping.set()
        self._trainer.close()

    @property
    def models(self) -> list[AllowedModel]:
        """The models that may be trained here."""
        return list(self._models.values())

    @property
    def most_payload(self) -> int:
        """Bytes of the largest valid payload: the largest allowed model and a correction."""
        return 2 * max((model.bytes for model in self._models.values()), default=0)

    def answer(self, request: Frame) -> Frame:
        """Answer a request, at the time the answer is due."""
        answer = self._answered(request)
        if answer.facts.get("reason") != Reason.MALFORMED:
            self._journal.note(request, answer)  # now, after its public time
        return answer

    def _answered(self, request: Frame) -> Frame:
        try:
            facts = checked_facts(request)
            if request.kind == "hello":
                simulated = self.silo.account.is_simulation
                return Frame({"kind": "hello", "silo": self.silo.name, "is_simulation": simulated, **own_greeting()})
            if request.kind != "cancel" and facts["run"] in self._closed:
                raise PrivacyRefusal(f"run {facts['run']!r} is in closed_runs of the silo file", Reason.CLOSED_RUN)
            run = facts["run"] if facts["run"] in self.silo.runs else _NO_RUN
            with self._turns.one(run, self._patience):
                # The turn ends at a public time, or at once with a refusal that rests on public things alone.
                began = self._timing.clock()
                answer = self._decide(request, facts, began)
                self._timing.hold(began)
                return answer
        except PrivacyRefusal as refusal:
            return self._answer_of(refusal)

    def _decide(self, request: Frame, facts: dict[str, Any], began: float) -> Frame:
        try:
            if request.kind == "admit":
                return self._admit(facts["run"], facts["plan"], facts["hold"], facts["head"])
            if request.kind == "cancel":
                return self._cancel(facts["run"], facts["head"])
            return self._round(facts, request.payload, began)
        except PrivacyRefusal:
            raise
        except Exception as error:  # its text stays here; nothing was released
            word = Reason.STORAGE if isinstance(error, OSError) and error.errno in _OF_THE_DISK else Reason.FAILED
            is_explained = word is Reason.STORAGE or isinstance(error, RpdpError)
            LOG.error("refused (%s): %s", word, error, exc_info=not is_explained)
            self._journal.note_problem(f"a request was refused ({word}): {error or type(error).__name__}")
            return refused(word)

    def _admit(self, run: str, plan: dict[str, Any], hold: int, head: dict[str, Any] | None) -> Frame:
        public = decode_plan(plan)
        model = self._allowed_model(public)
        module, loss = (None, None) if model is None else (model.module, model.loss)
        self.silo.account.expire()  # the hold of another run may have ended
        self._require_room(run)
        self._acknowledge(run, head)
        if self.silo.announced(run) is None:
            self._served.add(run)  # now: if admission fails after it is booked, the server must be able to cancel it
        try:
            self.silo.admit(
                run,
                public,
                module,
                loss,
                self._randomness(),
                hold,
                before_hold=lambda: self._log_outlook(run, public),
            )
        except PrivacyRefusal as refusal:
            # Returned, not raised, so that it leaves at the public time: it may come after budgets and steward actions
            # were read, which takes longer the more there are.
            return self._answer_of(refusal)
        self._served.add(run)
        self._turns.keep(self.silo.runs)
        LOG.info("admitted run %r, plan %s…; held for %d s until its first round", run, public.fingerprint[:12], hold)
        uncovered = list(self.silo.account.uncovered_cancellations())
        return Frame({"kind": "admitted", "uncovered": uncovered, "head": self._head()})

    def _log_outlook(self, run: str, public: PublicPlan) -> None:
        """Tell the silo's own log what a new run finds in the ledger, before anything is held.

        The answer does not depend on what is found, nor on whether it can be found, and it leaves at the public time:
        `rpdp silo check` demands a `release_after` with room for this. With `release_after = "ready"` the time of an
        admission is not covered, and this is part of it.
        """
        try:
            outlook = silo_outlook(self.silo, public)
        except Exception:
            LOG.exception("run %r: what the ledger has left for it could not be found", run)
            return
        for line in [] if outlook is None else outlook.lines():
            LOG.info("run %r: %s", run, line)

    def _cancel(self, run: str, head: dict[str, Any] | None) -> Frame:
        """Give back what a run holds. The head matters here, too: an old copy of a ledger has forgotten charges."""
        self._acknowledge(run, head)
        self.silo.cancel(run)
        LOG.info("cancelled run %r at the server's request; all that it held is free again", run)
        return Frame({"kind": "cancelled", "head": self._head()})

    def _allowed_model(self, public: PublicPlan) -> AllowedModel | None:
        """The model that a plan is for, if this agent can train it as planned; None for statistics."""
        if public.purpose == "statistics" and public.model_fingerprint is None:
            return None
        model = self._models.get(public.model_fingerprint or "")
        if model is None:
            raise PrivacyRefusal(
                f"the plan is for model {public.model_fingerprint!r}; this silo allows {', '.join(self._models)}",
                Reason.MODEL,
            )
        if public.request is not None:
            if self._evaluated not in (None, model.fingerprint):
                raise PrivacyRefusal(
                    f"the plan evaluates model {model.fingerprint}; this silo evaluates {self._evaluated}", Reason.MODEL
                )
            return model
        if public.recipe.micro_batch < SMALLEST_MICRO_BATCH:
            raise PrivacyRefusal(
                f"micro_batch={public.recipe.micro_batch} is below {SMALLEST_MICRO_BATCH}: a drawn record would take "
                "so long to train that meeting the deadline would reveal how many were drawn",
                Reason.POLICY,
            )
        if public.clip_norm < SMALLEST_CLIP_NORM:
            raise PrivacyRefusal(
                f"clip_norm={public.clip_norm} is below {SMALLEST_CLIP_NORM}, where float32 norms can underflow to 0; "
                "multiply the loss and the clip norm by the same number",
                Reason.POLICY,
            )
        return model

    def _require_room(self, run: str) -> None:
        """Refuse a new run beside too many unfinished ones; `closed_runs` names those that were abandoned."""
        statuses = self.silo.account.status().runs
        if any(one.run == run for one in statuses):
            return  # it has its place
        unfinished = [one.run for one in statuses if one.announced < one.rounds and not one.is_over]
        going = [name for name in unfinished if name not in self._closed]
        if len(going) >= self._most_runs:
            raise PrivacyRefusal(
                f"run {run!r} cannot start while {', '.join(map(repr, going))} {'is' if len(going) == 1 else 'are'} "
                f"unfinished (policy: max_concurrent_runs = {self._most_runs}). If one was abandoned, cancel it (`rpdp "
                "ledger cancel`) or, if it has begun, add it to closed_runs in the silo file",
                Reason.OTHER_RUN,
            )

    def _round(self, facts: dict[str, Any], payload: bytes, began: float) -> Frame:
        announcement = decode_announcement(facts, payload, self.silo.announced_like(facts["run"]))
        self._acknowledge(facts["run"], facts["head"])
        begun = self.silo.begin(announcement)
        update = begun if isinstance(begun, Update) else None
        if begun is True:
            update = self._train(announcement, began)
        LOG.info("run %r, round %d: %s", announcement.run, announcement.round, "released" if update else "sat out")
        if update is None:
            return Frame({"kind": "sat-out", "head": self._head()})
        return Frame({"kind": "update", "head": self._head()}, update.to_bytes())

    def _train(self, announcement: Announcement, began: float) -> Update | None:
        """The update of a charged round; None, for ever, if it could not be trained and stored in time."""

        def in_time() -> bool:
            return self._timing.in_time(began) and not self._stopping.is_set()

        try:
            return self.silo.finish(self.silo.train(announcement, in_time))
        except TooLate:
            problem = f"round {announcement.round} was not trained in time; it sits out, charged: see release_after"
            LOG.warning("%s", problem)
        except Exception as error:  # a record may have caused it, so it must look like sitting out
            problem = f"round {announcement.round} could not be trained; it sits out, charged"
            LOG.error("%s: %s", problem, error, exc_info=not isinstance(error, RpdpError))
        self._journal.note_problem(problem)
        return None

    def _acknowledge(self, run: str, head: dict[str, Any] | None) -> None:
        """Refuse to continue with a ledger that is older than the head the server knows."""
        if head is None:
            self._require_unused(run)
            return
        try:
            self.silo.account.acknowledge(decode_head(head))
        except PrivacyRefusal as error:
            raise PrivacyRefusal(str(error), Reason.HEAD) from None

    def _require_unused(self, run: str) -> None:
        """Refuse a used ledger when the server knows no head: a restored old copy would go unnoticed.

        A run that this process has admitted needs no head, nor does another run beside it: the process has held the
        ledger ever since, and a ledger that it found in use was shown a head first. A run that was cancelled has
        released nothing, so a ledger that knows no others is like a new one.
        """
        lost = self.silo.account.predecessor
        if lost is not None:
            raise PrivacyRefusal(
                f"the ledger succeeds ledger {lost.ledger[:12]}…, which was lost, and the server has not accepted it; "
                "see `rpdp ledger accept`",
                Reason.HEAD,
            )
        runs = [one.run for one in self.silo.account.status().runs if not one.is_over]
        known = [one for one in runs if one not in self._served]
        if self.silo.account.public_head() is not None and known:
            raise PrivacyRefusal(
                f"the ledger holds runs that the server does not know ({', '.join(known)}), so an old copy would go "
                "unnoticed; give the server the heads.json of those runs",
                Reason.HEAD,
            )

    def _head(self) -> dict[str, Any] | None:
        """The newest public head of the ledger, for the server to keep; None without a durable ledger."""
        head = self.silo.account.public_head()
        return None if head is None else asdict(head)

    def _answer_of(self, refusal: PrivacyRefusal) -> Frame:
        """One word for the server; the text goes to the silo's own log."""
        word = Reason.FAILED if refusal.reason is Reason.REFUSED else refusal.reason
        LOG.warning("refused (%s): %.500s", word, refusal)
        self._journal.note_problem(f"a request was refused ({word}): {refusal!s:.500}")
        return refused(word)
