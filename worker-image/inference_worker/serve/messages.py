"""The Open Inference Protocol's gRPC messages, by their names and numbers in the specification and Triton's extensions of it.

Sources: kserve/open-inference-protocol (specification/protocol/open_inference_grpc.proto) and Triton's extensions for model
repository, statistics, configuration and streaming.
"""

from typing import Any

from inference_worker.serve.message_tables import Table

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_MESSAGES = """
ServerLiveRequest
ServerLiveResponse: live 1 bool
ServerReadyRequest
ServerReadyResponse: ready 1 bool
ModelReadyRequest: name 1 string, version 2 string
ModelReadyResponse: ready 1 bool
ServerMetadataRequest
ServerMetadataResponse: name 1 string, version 2 string, extensions 3 *string
ModelMetadataRequest: name 1 string, version 2 string
ModelMetadataResponse.TensorMetadata: name 1 string, datatype 2 string, shape 3 *int64
ModelMetadataResponse: name 1 string, versions 2 *string, platform 3 string, inputs 4 *.TensorMetadata, outputs 5 *.TensorMetadata
InferParameter: bool_param 1 |bool, int64_param 2 |int64, string_param 3 |string, double_param 4 |double, uint64_param 5 |uint64
InferTensorContents: bool_contents 1 *bool, int_contents 2 *int32, int64_contents 3 *int64, uint_contents 4 *uint32,
  uint64_contents 5 *uint64, fp32_contents 6 *float, fp64_contents 7 *double, bytes_contents 8 *bytes
ModelInferRequest.InferInputTensor: name 1 string, datatype 2 string, shape 3 *int64, parameters 4 ->InferParameter,
  contents 5 InferTensorContents
ModelInferRequest.InferRequestedOutputTensor: name 1 string, parameters 2 ->InferParameter
ModelInferRequest: model_name 1 string, model_version 2 string, id 3 string, parameters 4 ->InferParameter,
  inputs 5 *.InferInputTensor, outputs 6 *.InferRequestedOutputTensor, raw_input_contents 7 *bytes
ModelInferResponse.InferOutputTensor: name 1 string, datatype 2 string, shape 3 *int64, parameters 4 ->InferParameter,
  contents 5 InferTensorContents
ModelInferResponse: model_name 1 string, model_version 2 string, id 3 string, parameters 4 ->InferParameter,
  outputs 5 *.InferOutputTensor, raw_output_contents 6 *bytes
ModelStreamInferResponse: error_message 1 string, infer_response 2 ModelInferResponse
ModelTensorReshape: shape 1 *int64
ModelInput: name 1 string, data_type 2 %DataType, format 3 %ModelInput.Format, dims 4 *int64, reshape 5 ModelTensorReshape,
  is_shape_tensor 6 bool, allow_ragged_batch 7 bool, optional 8 bool, is_non_linear_format_io 9 bool
ModelOutput: name 1 string, data_type 2 %DataType, dims 3 *int64, label_filename 4 string, reshape 5 ModelTensorReshape,
  is_shape_tensor 6 bool, is_non_linear_format_io 7 bool
ModelVersionPolicy.Latest: num_versions 1 uint32
ModelVersionPolicy.Specific: versions 1 *int64
ModelVersionPolicy: latest 1 |.Latest, specific 3 |.Specific
ModelTransactionPolicy: decoupled 1 bool
ModelQueuePolicy: allow_timeout_override 3 bool, max_queue_size 4 uint32
ModelDynamicBatching: max_queue_delay_microseconds 2 uint64, priority_levels 4 uint64, default_priority_level 5 uint64,
  default_queue_policy 6 ModelQueuePolicy
ModelInstanceGroup: name 1 string, count 2 int32, gpus 3 *int32, kind 4 %ModelInstanceGroup.Kind
ModelParameter: string_value 1 string
ModelConfig: name 1 string, platform 2 string, backend 17 string, version_policy 3 ModelVersionPolicy, max_batch_size 4 int32,
  input 5 *ModelInput, output 6 *ModelOutput, model_transaction_policy 19 ModelTransactionPolicy,
  dynamic_batching 11 ModelDynamicBatching, instance_group 7 *ModelInstanceGroup, parameters 14 ->ModelParameter
ModelConfigRequest: name 1 string, version 2 string
ModelConfigResponse: config 1 ModelConfig
ModelStatisticsRequest: name 1 string, version 2 string
StatisticDuration: count 1 uint64, ns 2 uint64
InferStatistics: success 1 StatisticDuration, fail 2 StatisticDuration, queue 3 StatisticDuration,
  compute_input 4 StatisticDuration,
  compute_infer 5 StatisticDuration, compute_output 6 StatisticDuration, cache_hit 7 StatisticDuration,
  cache_miss 8 StatisticDuration
InferBatchStatistics: batch_size 1 uint64, compute_input 2 StatisticDuration, compute_infer 3 StatisticDuration,
  compute_output 4 StatisticDuration
ModelStatistics: name 1 string, version 2 string, last_inference 3 uint64, inference_count 4 uint64, execution_count 5 uint64,
  inference_stats 6 InferStatistics, batch_stats 7 *InferBatchStatistics
ModelStatisticsResponse: model_stats 1 *ModelStatistics
ModelRepositoryParameter: bool_param 1 |bool, int64_param 2 |int64, string_param 3 |string, bytes_param 4 |bytes
RepositoryIndexRequest: repository_name 1 string, ready 2 bool
RepositoryIndexResponse.ModelIndex: name 1 string, version 2 string, state 3 string, reason 4 string
RepositoryIndexResponse: models 1 *.ModelIndex
RepositoryModelLoadRequest: repository_name 1 string, model_name 2 string, parameters 3 ->ModelRepositoryParameter
RepositoryModelLoadResponse
RepositoryModelUnloadRequest: repository_name 1 string, model_name 2 string, parameters 3 ->ModelRepositoryParameter
RepositoryModelUnloadResponse
SystemSharedMemoryStatusRequest: name 1 string
SystemSharedMemoryStatusResponse.RegionStatus: name 1 string, key 2 string, offset 3 uint64, byte_size 4 uint64
SystemSharedMemoryStatusResponse: regions 1 ->SystemSharedMemoryStatusResponse.RegionStatus
SystemSharedMemoryRegisterRequest: name 1 string, key 2 string, offset 3 uint64, byte_size 4 uint64
SystemSharedMemoryRegisterResponse
SystemSharedMemoryUnregisterRequest: name 1 string
SystemSharedMemoryUnregisterResponse
CudaSharedMemoryStatusRequest: name 1 string
CudaSharedMemoryStatusResponse.RegionStatus: name 1 string, device_id 2 uint64, byte_size 3 uint64
CudaSharedMemoryStatusResponse: regions 1 ->CudaSharedMemoryStatusResponse.RegionStatus
CudaSharedMemoryRegisterRequest: name 1 string, raw_handle 2 bytes, device_id 3 int64, byte_size 4 uint64
CudaSharedMemoryRegisterResponse
CudaSharedMemoryUnregisterRequest: name 1 string
CudaSharedMemoryUnregisterResponse
"""
_INTEGERS = tuple(f"{sign}INT{bits}" for sign in ("U", "") for bits in (8, 16, 32, 64))
_DATA_TYPES = ("INVALID", "BOOL", *_INTEGERS, "FP16", "FP32", "FP64", "STRING", "BF16")
SMALL_METHODS = (
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelConfig",
    "ModelStatistics",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    *(f"{kind}SharedMemory{verb}" for kind in ("System", "Cuda") for verb in ("Status", "Register", "Unregister")),
)
"""The methods whose request and response bear their name and that are no inference."""

_METHODS = "\n".join(
    (
        "ModelInfer ModelInferRequest ModelInferResponse",
        "ModelStreamInfer *ModelInferRequest *ModelStreamInferResponse",
        *(f"{name} {name}Request {name}Response" for name in SMALL_METHODS),
    )
)

_TABLE = Table(
    "open_inference.proto",
    PACKAGE,
    _MESSAGES,
    choices={
        "InferParameter": "parameter_choice",
        "ModelRepositoryParameter": "parameter_choice",
        "ModelVersionPolicy": "policy_choice",
    },
    enums={
        "DataType": tuple(f"TYPE_{name}" for name in _DATA_TYPES),
        "ModelInput.Format": ("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW"),
        "ModelInstanceGroup.Kind": ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"),
    },
    services={"GRPCInferenceService": _METHODS},
)
_TABLE.add()


def message(name: str) -> Any:
    """The class of a message."""
    return _TABLE.message(name)


ModelInferRequest = message("ModelInferRequest")
ModelInferResponse = message("ModelInferResponse")
ModelStreamInferResponse = message("ModelStreamInferResponse")
