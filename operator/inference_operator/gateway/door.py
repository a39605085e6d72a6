"""What is set for all callers."""

from dataclasses import dataclass

from inference_operator.payloads import NO_PAYLOADS, Payloads
from inference_operator.settings import GatewayTracing
from inference_operator.tenants import NO_TENANTS, Tenants


@dataclass(frozen=True, slots=True)
class Door:
    """See the settings of the gateway. `trust` are the CAs of workers, in PEM; empty without mutual TLS.

    `key_set` are the public keys of the tokens' issuer (JWKS, JSON), `envoys` how many share each quota of requests; `tracing` is
    None where nothing is traced.
    """

    port: int
    request_bytes: int
    hold_seconds: float = 300.0
    tls_folder: str = ""
    trust: str = ""
    tenants: Tenants = NO_TENANTS
    key_set: str = ""
    envoys: int = 1
    audit: bool = False
    payloads: Payloads = NO_PAYLOADS
    tracing: GatewayTracing | None = None

    @property
    def callers_folder(self) -> str:
        """Where the Envoys have the CAs of callers' certificates; empty where these are not asked for."""
        return self.tenants.certificate_folder if self.tenants.enabled else ""
