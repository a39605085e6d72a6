"""`version`: of the plug-in, and of what the cluster runs."""

from inference_client import __version__, calls
from inference_client.calls import Call, Resource
from inference_client.client import Client
from inference_client.errors import ClientError, ForbiddenError, NotFoundError
from kubectl_inference import draw
from kubectl_inference.options import Context, Kubeconfig, PageForm, PageOutput, connected

_DEPLOYMENTS = Resource("/apis/apps/v1", "deployments")


def version(output: PageForm = PageOutput.PAGE, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Print the versions of plug-in, API and operator."""
    found = {"client": __version__}
    try:
        with connected(kubeconfig, context, None) as client:
            found |= {"api": _api(client), "operator": _operator(client), "kubernetes": _server(client)}
    except ClientError as error:
        # Without a cluster the plug-in's own version is known all the same.
        draw.warn(str(error))
    if output is PageOutput.PAGE:
        draw.lines(f"{name}: {value}" for name, value in found.items())
    else:
        draw.document(found, output)


def _api(client: Client) -> str:
    try:
        return str(client.transport.send(Call("GET", f"/apis/{calls.GROUP_VERSION}"))["groupVersion"])
    except NotFoundError:
        return "not installed"


def _operator(client: Client) -> str:
    try:
        call = calls.list_(_DEPLOYMENTS, None, labels="app.kubernetes.io/name=inference-operator")
        found = client.transport.send(call)["items"]
    except ForbiddenError:
        return "unknown: the account may not list deployments"
    labels = (one["metadata"].get("labels", {}).get("app.kubernetes.io/version", "unknown") for one in found)
    return ", ".join(labels) or "not found"


def _server(client: Client) -> str:
    return str(client.transport.send(Call("GET", "/version"))["gitVersion"])
