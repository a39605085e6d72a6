"""Who asks an object store, a hub or a registry: the same for models, and for the inputs and outputs of batches."""

from typing import Annotated

from pydantic import Field

from inference_operator.api.schema import Rule, SecretName, api_type


@api_type()
class SecretReference:
    """A Secret of the same namespace."""

    name: Annotated[SecretName, Field(description="Its name; the administrator's admissionPolicy.secrets has to list it.")]


@api_type(Rule("has(self.secretRef) || has(self.awsRoleArn)", "storage needs secretRef or awsRoleArn"))
class Storage:
    """Who asks a store, and where the store is."""

    secret_ref: Annotated[
        SecretReference | None,
        Field(
            description="Of s3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_ENDPOINT_URL, AWS_REGION, "
            "AWS_CA_BUNDLE; of gs: GOOGLE_APPLICATION_CREDENTIALS, GCS_ENDPOINT_URL; of hf: HF_TOKEN, HF_ENDPOINT; "
            "of oci: .dockerconfigjson; ca.crt of all. Workers see no other key."
        ),
    ] = None
    aws_role_arn: Annotated[
        str | None,
        Field(
            pattern="^arn:[a-z-]+:iam::[0-9]{12}:role/[\\w+=,.@/-]+$",
            max_length=2048,
            description="The role that workers assume by a token of the namespace's ServiceAccount default; goes before keys.",
        ),
    ] = None
