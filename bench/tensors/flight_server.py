"""`python flight_server.py MODEL PORT`: a model behind Arrow Flight, with nothing around it: no queue, no deadlines, no checks."""

import sys

import onnxruntime
import pyarrow as pa
from pyarrow import flight

SCHEMA = pa.schema([("x", pa.float32())])


class Server(flight.FlightServerBase):
    """Answers each batch of one row's values with the model's answer to it."""

    def __init__(self, model: str, port: int) -> None:
        super().__init__(f"grpc://127.0.0.1:{port}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def do_exchange(
        self,
        context: flight.ServerCallContext,  # noqa: ARG002 -- Flight gives them all
        descriptor: flight.FlightDescriptor,  # noqa: ARG002
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """One stream: both sides have arrays of numpy that lie where the message came, and are not copied."""
        writer.begin(SCHEMA)
        for chunk in reader:
            values = chunk.data.column(0).to_numpy(zero_copy_only=True)
            (answer,) = self._session.run(None, {"x": values.reshape(1, -1)})
            writer.write_batch(pa.RecordBatch.from_arrays([pa.array(answer.reshape(-1))], schema=SCHEMA))


if __name__ == "__main__":
    Server(sys.argv[1], int(sys.argv[2])).serve()
