"""`python3 -m dev.cluster up|down|status|kill-node|start-node|kill-api|start-api|control-plane`."""

import argparse
import json
import os
from dataclasses import fields, replace
from pathlib import Path

from dev.cluster import (
    ControlPlane,
    Layout,
    Options,
    api_only_control_plane,
    api_only_layout,
    default_layout,
    down,
    full_control_plane,
    kill_api,
    kill_node,
    node_named,
    read_options,
    start_api,
    start_api_only,
    start_node,
    status,
    stop_api_only,
    up,
)
from dev.console import DevError, run_main

_ENVIRONMENT = "INFERENCE_DEV_"


def main() -> int:
    """Run one command; `up` prints on its last line how to reach the cluster."""
    arguments = _parser().parse_args()
    layout = default_layout()
    match arguments.command:
        case "up":
            _print_export(up(layout, _chosen_options(arguments, layout)))
        case "down":
            down(layout)
        case "status":
            return _print_status(full_control_plane(layout, read_options(layout)), arguments)
        case "kill-api":
            kill_api(layout)
        case "start-api":
            start_api(layout)
        case "kill-node" | "start-node":
            _on_node(arguments.command, layout, arguments.name)
        case "control-plane":
            return _control_plane(arguments)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m dev.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="start or repair the cluster")
    for option in fields(Options):
        flag = f"--{option.name.replace('_', '-')}"
        start.add_argument(flag, default=os.environ.get(f"{_ENVIRONMENT}{option.name.upper()}"))
    commands.add_parser("down", help="end everything and remove its state")
    commands.add_parser("status", help="say how it is").add_argument("--json", action="store_true")
    for name in ("kill-node", "start-node"):
        commands.add_parser(name).add_argument("name")
    commands.add_parser("kill-api", help="end API server and etcd")
    commands.add_parser("start-api", help="start them again")
    plane = commands.add_parser("control-plane", help="only the API, without nodes")
    plane.add_argument("action", choices=("up", "down", "status"))
    plane.add_argument("--state", type=Path, default=api_only_layout().state)
    plane.add_argument("--port", type=int, default=16443, help="first of four ports on loopback")
    plane.add_argument("--json", action="store_true")
    return parser


def _chosen_options(arguments: argparse.Namespace, layout: Layout) -> Options | None:
    named = {f.name: getattr(arguments, f.name) for f in fields(Options)}
    chosen = {name: value for name, value in named.items() if value is not None}
    return replace(read_options(layout), **chosen) if chosen else None


def _on_node(command: str, layout: Layout, name: str) -> None:
    node = node_named(name)
    if node is None:
        raise DevError(f"there is no node {name}")
    if command == "kill-node":
        kill_node(layout, node)
    else:
        start_node(layout, node)


def _control_plane(arguments: argparse.Namespace) -> int:
    plane = api_only_control_plane(Layout(arguments.state), port_base=arguments.port)
    if arguments.action == "status":
        return _print_status(plane, arguments)
    if arguments.action == "up":
        _print_export(start_api_only(plane))
    else:
        stop_api_only(plane)
    return 0


def _print_export(kubeconfig: Path) -> None:
    print(f"export KUBECONFIG={kubeconfig}")


def _print_status(plane: ControlPlane, arguments: argparse.Namespace) -> int:
    report = status(plane)
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print("healthy" if report["healthy"] else "not healthy")
        for name, process in report["processes"].items():
            print(f"  {name:24} pid {process['pid']} {'runs' if process['running'] else 'ENDED'}")
    return 0 if report["healthy"] else 1


if __name__ == "__main__":
    run_main(main)
