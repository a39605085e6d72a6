"""The commands of `kubectl inference`, put together."""

import typer

from kubectl_inference.commands.download import download
from kubectl_inference.commands.lifecycle import resume, retry, suspend
from kubectl_inference.commands.logs import logs
from kubectl_inference.commands.predict import predict
from kubectl_inference.commands.push import push
from kubectl_inference.commands.report import report
from kubectl_inference.commands.status import explain, status
from kubectl_inference.commands.submit import submit
from kubectl_inference.commands.top import top
from kubectl_inference.commands.version import version
from kubectl_inference.commands.wait import wait

app = typer.Typer(
    name="kubectl inference",
    help="Submit, watch and understand InferenceJobs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (status, explain, top, submit, wait, predict, logs, push, download, suspend, resume, retry, report, version):
    app.command()(command)
