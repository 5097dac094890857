"""The pages of the console: what each shows, and what its forms do."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from rpdp.checks import require_choice
from rpdp.console.action_list import as_csv, listed_actions
from rpdp.console.attention_list import attention, verification_age
from rpdp.console.person_story import Person, act, found_person, story_of, usual_actor
from rpdp.console.request_guard import SIGN_IN, STYLE, RequestGuard
from rpdp.console.share_bars import runs_figure, signal_figure, use_figure
from rpdp.console.what_if_form import checked_settings, forecast_settings
from rpdp.deployment.agent.agent_status import silo_status
from rpdp.errors import InputError, RpdpError
from rpdp.ledger.inspection.overview import EDGES
from rpdp.ledger.inspection.use_over_time import group_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from rpdp.console.console_silo import ConsoleSilo
    from rpdp.console.sign_in import Session, SignIn

PAGES = {
    "/": "Overview",
    "/runs": "Runs and studies",
    "/budgets": "Budgets over time",
    "/people": "People",
    "/what-if": "What if",
    "/actions": "Actions",
    "/verify": "Verify",
    "/audit": "Audit",
}
"""Every page, in the order of the menu."""

PAGE_SIZE = 50
_STORY_SIZE = 20
_AUDITS = (1_000, 10_000, 100_000)


class ConsolePages:
    """The application: routes, templates, and the answers to forms.

    Args:
        silo: What is shown.
        access: Who may see it.
    """

    def __init__(self, silo: ConsoleSilo, access: SignIn) -> None:
        self._silo, self._access = silo, access
        self._templates = Environment(
            loader=PackageLoader("rpdp.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["thousands"] = lambda value: f"{value:,}"
        self._templates.filters["percent"] = lambda value: f"{value:.1%}"
        self._templates.filters["g"] = lambda value: f"{value:.4g}"
        self._templates.filters["day"] = lambda text: text[:10]
        self._templates.globals.update(group_name=group_name, pages=PAGES)
        loader = self._templates.loader
        assert loader is not None
        self._style = loader.get_source(self._templates, "console.css")[0]

    def app(self) -> ASGIApp:
        """The application, behind its guard."""
        get: dict[str, Callable[[Request], Response]] = {
            "/": self.overview,
            "/runs": self.runs,
            "/budgets": self.budgets,
            "/people": self.people,
            "/people/{name}": self.story,
            "/what-if": self.what_if,
            "/actions": self.actions,
            "/actions.csv": self.actions_file,
            "/verify": self.verify,
            "/verify/package.zip": self.package,
            "/audit": self.audit,
            SIGN_IN: self.sign_in,
            STYLE: self.style,
        }
        post: dict[str, Callable[[Request], Response]] = {
            "/people": self.look_up,
            "/people/{name}": self.act,
            "/verify": partial(self.start, "verify", "/verify"),
            "/verify/package": partial(self.start, "package", "/verify"),
            "/audit": partial(self.start, "audit", "/audit"),
            "/sign-out": self.sign_out,
            SIGN_IN: self.sign_in_by_form,
        }
        routes = [Route(path, answer, methods=["GET"]) for path, answer in get.items()]
        routes += [Route(path, answer, methods=["POST"]) for path, answer in post.items()]
        handlers: dict[Any, Any] = {RpdpError: self._refused, HTTPException: self._not_there, Exception: self._failed}
        inner = Starlette(routes=routes, exception_handlers=handlers)
        inner.router.redirect_slashes = False
        return RequestGuard(inner, self._access, self._message)

    # Pages

    def overview(self, request: Request) -> Response:
        """How the silo stands, and what needs attention."""
        with self._silo.ledger() as ledger:
            counted, job = self._silo.counts(ledger)
            if counted is None:
                return self._waiting(request, "/", job)
            status = silo_status(self._silo.spec, overview=counted.overview)
            found = attention(status, counted.use, ledger, self._silo.results())
        return self._page(
            request,
            "overview",
            "/",
            status=status,
            counted=counted,
            attention=found,
            counting=job,
            groups=range(len(EDGES) + 1),
            edges=EDGES,
        )

    def runs(self, request: Request) -> Response:
        """All runs by study, the latest first."""
        with self._silo.ledger() as ledger:
            counted, job = self._silo.counts(ledger)
            if counted is None:
                return self._waiting(request, "/runs", job)
            with ledger.reading():
                fresh = {one.run: one for one in ledger.runs.status()}
        found = [(one, fresh[one.status.run]) for one in reversed(counted.overview.runs)]
        shown, number, last = _paged(request, found)
        return self._page(request, "runs", "/runs", runs=shown, number=number, last=last, counting=job)

    def budgets(self, request: Request) -> Response:
        """The use of lifetime budgets, and how many runs are left."""
        with self._silo.ledger() as ledger:
            counted, job = self._silo.counts(ledger)
        if counted is None:
            return self._waiting(request, "/budgets", job)
        figures = [use_figure(counted.use)]
        if counted.forecast is not None:
            figures.append(runs_figure(counted.forecast))
        years = counted.use.by_year()
        return self._page(
            request,
            "budgets",
            "/budgets",
            counted=counted,
            figures=figures,
            years=years,
            counting=job,
            groups=[number for number in range(len(EDGES) + 1) if counted.use.in_group[number]],
        )

    def people(self, request: Request) -> Response:
        """Look somebody up."""
        return self._page(request, "people", "/people")

    def look_up(self, request: Request) -> Response:
        """Find somebody, and go to the story."""
        form, session = _form(request), _session(request)
        with self._silo.ledger() as ledger:
            person = found_person(ledger, form.get("kind", ""), form.get("id", ""))
        return _see(f"/people/{session.remember(person)}")

    def story(self, request: Request) -> Response:
        """What the ledger knows of somebody."""
        person = self._person(request)
        with self._silo.ledger() as ledger:
            story = story_of(ledger, person)
        shown, number, last = _paged(request, list(story.records), _STORY_SIZE)
        return self._page(
            request,
            "story",
            "/people",
            person=person,
            story=story,
            shown=shown,
            number=number,
            last=last,
            actor=usual_actor(),
            place=request.url.path,
        )

    def act(self, request: Request) -> Response:
        """Do what the steward asks for, and go back to the story."""
        session = _session(request)
        session.notice = act(self._silo, self._person(request), _form(request))
        return _see(request.url.path)

    def _person(self, request: Request) -> Person:
        found = _session(request).persons.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        return found

    def what_if(self, request: Request) -> Response:
        """Runs that have not been planned yet."""
        asked = request.query_params
        settings = forecast_settings(asked, self._silo.spec.policy)
        if not asked:
            return self._page(request, "what_if", "/what-if", settings=settings, job=None, figures=[])
        job = self._silo.forecast(checked_settings(settings))
        job.wait(0.8)
        figures = [] if job.result is None else [signal_figure(job.result), runs_figure(job.result)]
        page = self._page(request, "what_if", "/what-if", settings=settings, job=job, figures=figures)
        if job.is_running:
            page.headers["Refresh"] = "1"
        return page

    def actions(self, request: Request) -> Response:
        """What stewards did, the latest first."""
        with self._silo.ledger() as ledger:
            found = listed_actions(ledger)
        shown, number, last = _paged(request, found)
        return self._page(request, "actions", "/actions", actions=shown, count=len(found), number=number, last=last)

    def actions_file(self, request: Request) -> Response:
        """The same as a table for a spreadsheet."""
        with self._silo.ledger() as ledger:
            text = as_csv(listed_actions(ledger))
        headers = {"Content-Disposition": 'attachment; filename="actions.csv"'}
        return Response(text, media_type="text/csv; charset=utf-8", headers=headers)

    def verify(self, request: Request) -> Response:
        """Verify the ledger, and get a package for the auditor."""
        job, packing = self._silo.job("verify"), self._silo.job("package")
        last = self._silo.results().get("verify")
        running = [one for one in (job, packing) if one is not None and one.is_running]
        page = self._page(
            request,
            "verify",
            "/verify",
            job=job,
            packing=packing,
            found=last,
            age=None if last is None else verification_age(last, time.time()),
            has_package=packing is not None and packing.result is not None,
        )
        if running:
            page.headers["Refresh"] = "1"
        return page

    def package(self, request: Request) -> Response:
        """The auditor's package."""
        packing = self._silo.job("package")
        if packing is None or packing.result is None:
            raise HTTPException(404)
        return FileResponse(self._silo.package, media_type="application/zip", filename=self._silo.package.name)

    def audit(self, request: Request) -> Response:
        """Attack this build with canaries."""
        job = self._silo.job("audit")
        page = self._page(request, "audit", "/audit", job=job, found=self._silo.results().get("audit"), sizes=_AUDITS)
        if job is not None and job.is_running:
            page.headers["Refresh"] = "1"
        return page

    def start(self, name: str, back: str, request: Request) -> Response:
        """Start a job, and show how far it is."""
        form = _form(request)
        per_group = 0
        if name == "audit":
            wanted = form.get("per_group", "")
            require_choice("canaries", wanted, [str(size) for size in _AUDITS])
            per_group = int(wanted)
        self._silo.start(name, per_group=per_group)
        return _see(back)

    # Signing in and out

    def sign_in(self, request: Request) -> Response:
        """Exchange the token of an address for a session; without one, ask for it."""
        token = request.query_params.get("token")
        if token is None:
            return self._page(request, "sign_in", SIGN_IN, why="")
        return self._signed_in(request, token)

    def sign_in_by_form(self, request: Request) -> Response:
        """Exchange the token of a form."""
        return self._signed_in(request, _form(request).get("token", "").strip())

    def _signed_in(self, request: Request, token: str) -> Response:
        session = self._access.exchange(token, request.scope["user"])
        if session is None:
            why = "This token is not good, or no longer: each is good once. The latest is on the console's terminal."
            return self._page(request, "sign_in", SIGN_IN, 403, why=why)
        # A page that leads on by itself: after a redirect the browser would still hold the address that the token came
        # from for another site's, and keep the cookie back.
        page = self._page(request, "signed_in", SIGN_IN)
        page.headers["Refresh"] = "0; url=/"
        page.set_cookie(self._access.cookie, session.key, httponly=True, samesite="strict", path="/")
        return page

    def sign_out(self, request: Request) -> Response:
        """End the session."""
        self._access.end()
        answer = _see(SIGN_IN)
        answer.delete_cookie(self._access.cookie, path="/")
        return answer

    def style(self, request: Request) -> Response:
        """How the pages look."""
        return Response(self._style, media_type="text/css; charset=utf-8")

    # Answers

    def _page(self, request: Request | None, template: str, here: str, code: int = 200, **values: Any) -> HTMLResponse:
        session: Session | None = None if request is None else request.scope.get("session")
        common = {
            "silo": self._silo,
            "here": here,
            "title": PAGES.get(here, "Console"),
            "form_token": "" if session is None else session.form_token,
            "is_signed_in": session is not None,
            "notice": "" if session is None else session.take_notice(),
            "now": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        }
        html = self._templates.get_template(f"{template}.html.j2").render(common | values)
        return HTMLResponse(html, code)

    def _waiting(self, request: Request, here: str, job: Any) -> Response:
        if job is not None and job.problem:
            raise InputError(f"the budgets could not be counted: {job.problem}")
        page = self._page(request, "waiting", here, job=job)
        page.headers["Refresh"] = "1"
        return page

    def _message(self, code: int, why: str) -> Response:
        if code == 401:
            return self._page(None, "sign_in", SIGN_IN, code, why="")
        return self._page(None, "message", "", code, heading="Refused", why=why)

    def _refused(self, request: Request, error: RpdpError) -> Response:
        code = 403 if error.exit_code == 3 else 400
        return self._page(request, "message", "", code, heading="Nothing was done", why=str(error))

    def _not_there(self, request: Request, error: HTTPException) -> Response:
        why = "There is no such page here." if error.status_code == 404 else "The console does not do this."
        return self._page(request, "message", "", error.status_code, heading="Not found", why=why)

    def _failed(self, request: Request, error: Exception) -> Response:
        why = "Something failed here that should not. The console's terminal says what; please report it."
        return self._page(None, "message", "", 500, heading="An error", why=why)


def _session(request: Request) -> Session:
    session = request.scope["session"]
    assert session is not None  # the guard lets nobody else through
    return session  # type: ignore[no-any-return]


def _form(request: Request) -> Mapping[str, str]:
    return request.scope["form"]  # type: ignore[no-any-return]


def _see(path: str) -> RedirectResponse:
    """After a form, a page that may be loaded again."""
    return RedirectResponse(path, 303)


def _paged(request: Request, found: list[Any], size: int = PAGE_SIZE) -> tuple[list[Any], int, int]:
    """A page of a list: its entries, its number, and the number of the last page."""
    last = max(1, -(-len(found) // size))
    text = request.query_params.get("page", "1")
    number = min(int(text), last) if text.isascii() and text.isdigit() and len(text) < 10 else 1
    number = max(1, number)
    return found[(number - 1) * size : number * size], number, last
