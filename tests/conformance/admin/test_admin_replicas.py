"""Elections and reassignments as the clients ask for them, on a broker that is alone; clusters are in tests/cluster."""

import confluent_kafka as ck
from confluent_kafka import admin as cka
from kafka.errors import InvalidReplicationAssignmentError

import kafka

NO_REASSIGNMENT = 85


def test_the_quorum_of_one_is_described(python: kafka.KafkaAdminClient) -> None:
    described = python.describe_metadata_quorum()
    (topic,) = described["topics"]
    (partition,) = topic["partitions"]
    (voter,) = partition["current_voters"]
    assert voter["replica_id"] == partition["leader_id"]
    assert partition["observers"] == []


def test_the_preferred_leader_that_leads_needs_no_election(confluent: cka.AdminClient, topic: str) -> None:
    asked = [ck.TopicPartition(topic, 0), ck.TopicPartition("nowhere", 0)]
    told = confluent.elect_leaders(ck.ElectionType.PREFERRED, asked).result(30)
    assert {place.topic: error.code() for place, error in told.items()} == {
        topic: ck.KafkaError.ELECTION_NOT_NEEDED,
        "nowhere": ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
    }


def test_an_election_for_all_names_only_those_that_had_one(confluent: cka.AdminClient, topic: str) -> None:
    assert confluent.elect_leaders(ck.ElectionType.PREFERRED, None).result(30) == {}


def test_a_replica_that_is_there_already_is_no_work(python: kafka.KafkaAdminClient, topic: str) -> None:
    place = kafka.TopicPartition(topic, 0)
    here = python.describe_topics([topic])[0]["partitions"][0]["replica_nodes"]
    assert python.alter_partition_reassignments({place: here}) == {place: None}
    assert place not in python.list_partition_reassignments()


def test_a_broker_that_does_not_exist_gets_no_replica(python: kafka.KafkaAdminClient, topic: str) -> None:
    place = kafka.TopicPartition(topic, 0)
    assert python.alter_partition_reassignments({place: [99]}) == {place: InvalidReplicationAssignmentError}


def test_only_a_reassignment_under_way_can_be_cancelled(python: kafka.KafkaAdminClient, topic: str) -> None:
    place = kafka.TopicPartition(topic, 0)
    told = python.alter_partition_reassignments({place: None})
    assert told[place] is not None
    assert told[place].errno == NO_REASSIGNMENT
