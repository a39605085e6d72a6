"""How a serving job speaks with its callers: TLS on its ports, and who is let in."""

from typing import Annotated

from pydantic import Field

from inference_operator.api.schema import Rule, SecretName, api_type


@api_type()
class ServeTls:
    """TLS on the ports of a serving job's workers. Without a Secret the operator's own authority signs for its Service's names."""

    secret_name: Annotated[
        SecretName | None,
        Field(description="A Secret with tls.crt and tls.key, as cert-manager writes it; a changed one is taken up while running."),
    ] = None


@api_type()
class ClientCertificates:
    """Callers who are let in by a certificate."""

    ca_secret_name: Annotated[SecretName, Field(description="A Secret whose ca.crt has signed the callers' certificates.")]


@api_type()
class Jwt:
    """Callers who are let in by a bearer token, which is checked without asking anybody."""

    issuer: Annotated[str, Field(min_length=1, max_length=512, description="What iss has to be.")]
    audiences: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=253)]],
        Field(
            min_length=1,
            max_length=8,
            description="What aud has to name one of.",
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ]
    jwks_secret_name: Annotated[SecretName, Field(description="A Secret whose jwks.json has the issuer's public keys.")]


@api_type(
    Rule("has(self.clientCertificates) || has(self.jwt)", "set clientCertificates, jwt, or both: either lets a caller in"),
)
class Authentication:
    """Who is let in. Where both ways are set, either is enough."""

    client_certificates: Annotated[ClientCertificates | None, Field(description="By a certificate.")] = None
    jwt: Annotated[Jwt | None, Field(description="By a bearer token.")] = None
