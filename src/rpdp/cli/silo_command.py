"""`rpdp silo`: check and serve the agent of one silo; the node that carries its messages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpdp.cli import options
from rpdp.cli.output import print_json, say, say_line
from rpdp.cli.signals import stop_on_signal
from rpdp.log_format import begin_logging

if TYPE_CHECKING:
    from rpdp.deployment.agent.agent import Agent
    from rpdp.deployment.files.silo_file import SiloFile

app = typer.Typer(no_args_is_help=True)

NodeFileArgument = Annotated[Path, typer.Argument(metavar="NODE.toml", help="The node file (TOML).")]
SiloFileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The silo file (TOML).")]


@app.callback()
def _root() -> None:
    """Run a silo's side of a federation: its agent keeps data, budgets, ledger and training.

    Example: `rpdp silo check silo.toml`, then `rpdp silo serve silo.toml`
    """


@app.command()
def check(
    file: SiloFileArgument,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="The public plan of the next run; by default the largest that the policy admits."),
    ] = None,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Open everything that the agent would open, measure the slowest round and request, and describe it.

    Nothing is served.

    It says from the ledger what the next run would find: who can take part, who cannot and why, the signal that is
    left, how many more such runs fit. It is refused (exit code 3) if `release_after` is shorter than a round, or a
    request for statistics or evaluation, can take: a record could then make it late, and everybody would see that.

    Example: `rpdp silo check silo.toml`
    """
    from rpdp.deployment.agent.checked_outlook import checked_outlook, require_time_to_plan
    from rpdp.deployment.agent.opening import open_agent, table_remarks
    from rpdp.deployment.agent.slowest_rounds import (
        not_checked,
        require_enough_time,
        require_time_for_requests,
        slowest_requests,
        slowest_rounds,
    )
    from rpdp.deployment.agent.socket_service import require_group
    from rpdp.deployment.files.silo_file import SiloFile
    from rpdp.deployment.own_socket import require_own_directory
    from rpdp.planning import PublicPlan

    spec = SiloFile.read(file)
    public = None if plan is None else PublicPlan.read(plan)
    require_group(spec.silo.group)
    require_own_directory(spec.file(spec.silo.socket))
    with open_agent(spec, wait) as agent:
        facts = _facts(spec, agent)
        found = checked_outlook(spec, agent, public)
        facts["next_run"] = {
            "plan": found.what,
            "outlook": None if found.outlook is None else found.outlook.facts(),
            "problem": found.problem,
        }
        seconds = slowest_rounds(spec, agent)
        facts["slowest_round"] = {name: round(each, 4) for name, each in seconds.items()}
        requests = slowest_requests(spec, agent)
        facts["slowest_request"] = {name: round(each, 4) for name, each in requests.items()}
        facts["not_covered"] = not_checked(spec, agent)
        facts["table"] = table_remarks(spec)
        require_enough_time(spec, seconds)
        require_time_for_requests(spec, requests)
        require_time_to_plan(spec, found)
    if as_json:
        print_json(facts)
        return
    say(f"silo {facts['silo']}: {facts['records']:,} records, each with a budget and an account")
    say_line(f"ledger: {facts['ledger']} ({facts['kind']}), {facts['runs']} of {facts['max_runs']} runs admitted")
    for line in found.lines():
        say(line)
    for name, model in facts["models"].items():
        say_line(f"model {name}: {model['parameters']:,} parameters, fingerprint {model['fingerprint']}")
        say_line(f"model {name}: a round takes at most {facts['slowest_round'][name]:.3g} s here, whatever is drawn")
    for name, each in facts["slowest_request"].items():
        say_line(f"{name}: a request takes at most {each:.3g} s here, whatever records hold")
    for note in [*facts["table"], *facts["not_covered"]]:
        say(note)
    after = facts["release_after"]
    when = (
        "as soon as they are ready: their timing is not covered" if after is None else f"{after:g} s after the request"
    )
    say(f"answers leave {when}")
    say(_plans(facts["allowed_plans"]))
    say_line(f"socket: {facts['socket']}")


def _plans(allowed: list[str] | None) -> str:
    if allowed is None:
        return "any plan within the policy may run and book budgets: name the agreed ones in allowed_plans"
    return f"plans that may run: {', '.join(allowed) or 'none'}"


def _facts(spec: SiloFile, agent: Agent) -> dict[str, Any]:
    status = agent.silo.account.status()
    return {
        "silo": spec.silo.name,
        "records": len(agent.silo.records),
        "ledger": str(spec.file(spec.silo.ledger)),
        "kind": "simulation" if status.is_simulation else "production",
        "runs": sum(not run.is_over for run in status.runs),
        "max_runs": spec.policy.max_runs,
        "models": {
            name: {"fingerprint": model.fingerprint, "parameters": model.parameters}
            for name, model in zip(spec.models, agent.models, strict=True)
        },
        "release_after": spec.policy.release_after,
        "allowed_plans": None if spec.policy.allowed_plans is None else list(spec.policy.allowed_plans),
        "socket": str(spec.file(spec.silo.socket)),
    }


@app.command()
def status(
    file: SiloFileArgument,
    certificates: Annotated[
        Path | None,
        typer.Option(
            "--certificates",
            help="The directory of ca.crt and NAME.crt; by default that of the silo file, or /etc/rpdp.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Say how the silo stands, beside its running agent: nothing is changed. Run it as the agent's user.

    Exit codes, for monitoring: 0 the agent answers and nothing asks for attention; 1 no agent answers; 2 a file is
    wrong or missing; 3 the ledger is refused; 4 the agent answers, but something asks for attention (a certificate that
    ends within 30 days, a clock that differs, another release than the installed one, a problem of the last week).

    Example: `rpdp silo status silo.toml`
    """
    from rpdp.deployment.agent.agent_status import silo_status
    from rpdp.deployment.files.silo_file import SiloFile

    found = silo_status(SiloFile.read(file), certificates)
    if as_json:
        print_json(found.facts())
    else:
        for line in found.lines():
            say_line(line)
    raise typer.Exit(found.exit_code)


@app.command()
def serve(
    file: SiloFileArgument,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also log who connects.")] = False,
    log_format: options.LogFormatOption = "text",
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Serve the silo until SIGTERM or Ctrl-C. Requests and refusals are logged on standard error.

    With --json the description of `rpdp silo check` is printed first.

    Example: `rpdp silo serve silo.toml`
    """
    from rpdp.deployment.agent.opening import open_agent
    from rpdp.deployment.agent.socket_service import Service
    from rpdp.deployment.files.silo_file import SiloFile

    begin_logging(options.log_format_of(log_format), verbose=verbose)
    spec = SiloFile.read(file)
    with open_agent(spec, wait, watched=True) as agent:
        if as_json:
            print_json(_facts(spec, agent))
            sys.stdout.flush()
        service = Service(agent, spec.file(spec.silo.socket), group=spec.silo.group)
        stop_on_signal(service.stop)
        service.serve()


@app.command()
def node(
    file: NodeFileArgument,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also log heartbeats that fail.")] = False,
    log_format: options.LogFormatOption = "text",
    as_json: options.Json = False,
) -> None:
    """Carry messages between the server and the silo's agent until SIGTERM or Ctrl-C, as another user than the agent's.

    It executes nothing that a server sends, and holds no data. While the server is away it tries again. It ends, with
    exit code 1 and a reason, when the server does not accept it: let systemd start it again. With --json it first
    prints where it connects to.

    Example: `rpdp silo node node.toml`
    """
    from rpdp.deployment.files.node_file import NodeFile
    from rpdp.deployment.flower.fleet_link import FleetLink, require_known_flower
    from rpdp.deployment.flower.silo_node import SiloNode

    begin_logging(options.log_format_of(log_format), verbose=verbose)
    require_known_flower()
    spec = NodeFile.read(file)
    socket = spec.file(spec.node.socket)
    running = SiloNode(spec.node.silo, socket, FleetLink.of(spec))
    if as_json:
        print_json({"silo": spec.node.silo, "server": spec.node.server, "socket": str(socket)})
        sys.stdout.flush()
    stop_on_signal(running.stop)
    running.run()
