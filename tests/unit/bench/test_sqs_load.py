"""The load on the SQS door counts messages that were deleted, and nothing else."""

import pytest
from bench.frames import BenchError
from bench.sqs_load import LOADS, Client, Skidway, ask, make_queue, measure, run_for

from skidway.testing import Broker


def test_every_load_runs_and_leaves_what_it_should() -> None:
    with Broker(http="127.0.0.1:0", flush="os") as broker:
        for load in LOADS:
            figures = measure(Skidway(broker), load, 0.3)
            assert figures.messages_per_s > 0, load.name
            assert figures.requests_per_s > 0, load.name


def test_what_is_counted_is_gone() -> None:
    load = LOADS[0]
    with Broker(http="127.0.0.1:0", flush="os") as broker:
        target = Skidway(broker)
        url = make_queue(target, load)
        client = Client(target, load, url, 0)
        run_for([client], 0.3)
        while client.done == 0 or client.answered % 3:
            run_for([client], 0.0)
        asked = {"QueueUrl": url, "AttributeNames": ["All"]}
        left = ask(target, "GetQueueAttributes", asked)["Attributes"]
        client.socket.close()
    # The last life is counted when the next one begins.
    assert client.done == load.batch * (client.answered // 3 - 1)
    assert left["ApproximateNumberOfMessages"] == left["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_a_refusal_is_no_answer() -> None:
    with Broker(http="127.0.0.1:0", flush="os") as broker:
        client = Client(Skidway(broker), LOADS[0], f"{broker.http}/000000000000/nowhere", 0)
        with pytest.raises(BenchError, match="NonExistentQueue"):
            run_for([client], 0.05)
        client.socket.close()
