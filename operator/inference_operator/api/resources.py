"""What a container asks of its node."""

from typing import Annotated

from pydantic import Field

from inference_operator.api.schema import LabelKey, Quantity, api_type


@api_type()
class Resources:
    """What each worker container asks for, over the accelerator itself."""

    requests: Annotated[
        dict[LabelKey, Quantity], Field(max_length=8, description="Reserved on the node, for example cpu and memory.")
    ] = Field(default_factory=dict)
    limits: Annotated[
        dict[LabelKey, Quantity], Field(max_length=8, description="Never exceeded; by default memory is limited to its request.")
    ] = Field(default_factory=dict)
