"""A real two-node Kubernetes on one machine, without Docker, for development and tests.

Start reading at `lifecycle.up`. Other code imports from here: `from dev.cluster import up, down`.
"""

from dev.cluster.layout import (
    NODES,
    ClientLimits,
    ControlPlane,
    Layout,
    Options,
    api_only_control_plane,
    api_only_layout,
    default_layout,
    full_control_plane,
    node_named,
)
from dev.cluster.lifecycle import (
    down,
    freeze_api,
    is_healthy,
    kill_api,
    read_options,
    start_api,
    start_api_only,
    start_node,
    status,
    stop_api_only,
    up,
)
from dev.cluster.nodes import kill_node

__all__ = [
    "NODES",
    "ClientLimits",
    "ControlPlane",
    "Layout",
    "Options",
    "api_only_control_plane",
    "api_only_layout",
    "default_layout",
    "down",
    "freeze_api",
    "full_control_plane",
    "is_healthy",
    "kill_api",
    "kill_node",
    "node_named",
    "read_options",
    "start_api",
    "start_api_only",
    "start_node",
    "status",
    "stop_api_only",
    "up",
]
