"""The way to the API server for event loops; see `transport.py`."""

import asyncio
from typing import Self

import aiohttp
from kubernetes.aio import client, config

from inference_client.calls import Call, Exec, Raw
from inference_client.errors import ConfigurationError, refusal
from inference_client.kubeconfig import chosen, files_of, unconfigured
from inference_client.pod_exec import PROTOCOL, Heard, web_socket
from inference_client.transport import document, event, inside, own_namespace, prepared, require_credentials, unreachable


class AsyncTransport:
    """Carries calls out in an event loop."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    @classmethod
    async def from_kubeconfig(cls, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """As kubectl: KUBECONFIG or ~/.kube/config, else the pod's own account. Raises ConfigurationError."""
        try:
            if inside(kubeconfig):
                settings = client.Configuration()
                config.load_incluster_config(settings)
                return cls(client.ApiClient(settings), own_namespace())
            given = chosen(kubeconfig, context)
            made = await config.new_client_from_config(config_file=given.files, context=given.context)
        except (config.ConfigException, OSError) as error:
            raise unconfigured(files_of(kubeconfig), error) from error
        try:
            require_credentials(given, made)
        except ConfigurationError:
            await made.close()
            raise
        return cls(made, given.namespace)

    async def close(self) -> None:
        """End the connections."""
        await self.api.close()

    async def read(self, program: Exec) -> None:
        """Run a program in a pod; its sink gets what it prints. Raises ClientError, with its errors when it fails."""
        heard = Heard(program)
        try:
            async with asyncio.timeout(program.timeout_seconds):
                _, url, headers, *_ = await self.api.param_serialize(*prepared(program.call), auth_settings=["BearerToken"])
                # A session is made with the first request.
                session = self.api.rest_client.pool_manager or self.api.rest_client._create_pool_manager()  # noqa: SLF001
                self.api.rest_client.pool_manager = session
                proxy = self.api.configuration.proxy
                opened = session.ws_connect(web_socket(url), headers=headers, protocols=(PROTOCOL,), proxy=proxy)
                async with opened as socket:
                    async for message in socket:
                        if message.type is aiohttp.WSMsgType.BINARY:
                            heard(message.data)
        except aiohttp.WSServerHandshakeError as error:
            raise refusal(error.status, {"message": f"{error.status}: {error.message}"}) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise heard.broken(error) from error
        heard.check()

    async def send(self, call: Call) -> Raw:
        """The answer. Raises ClientError."""
        try:
            request = await self.api.param_serialize(*prepared(call), auth_settings=["BearerToken"])
            response = await self.api.call_api(*request, _request_timeout=call.timeout_seconds)
            if not 200 <= response.status <= 299:
                raise refusal(response.status, await response.read())
            if call.first_change:
                try:
                    return event(await response.response.content.readline())
                finally:
                    response.response.close()
            body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable(self.api.configuration.host, error) from error
        return {"text": body.decode(errors="replace")} if call.text else document(body)
