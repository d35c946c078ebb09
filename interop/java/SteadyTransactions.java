// Transactions of Java's kafka-clients before 4.0, which keep their epoch: `java -cp 'jars/*' SteadyTransactions.java host:port`.
// Clients of 4.x do the same where transaction.version is below 2; this broker has finalized 2 and cannot go back.
// Every check prints "ok <what>"; the first that fails ends the program with its reason.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class SteadyTransactions {
    static String bootstrap;
    static Admin admin;

    interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        check("commit and abort, one epoch for all", SteadyTransactions::commitAndAbort);
        check("a newcomer fences a zombie", SteadyTransactions::fencing);
        check("read, process and write", SteadyTransactions::copy);
        System.exit(0);
    }

    static void check(String what, Check body) {
        try {
            body.run();
            System.out.println("ok " + what);
        } catch (Throwable problem) {
            System.out.println("FAIL " + what);
            problem.printStackTrace(System.out);
            System.exit(1);
        }
    }

    static void same(Object found, Object expected) {
        if (!Objects.equals(found, expected)) throw new AssertionError("found " + found + ", expected " + expected);
    }

    static String topic(int partitions) throws Exception {
        String name = "java-steady-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        return name;
    }

    static Producer<String, String> producer(String id) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "transactional.id", id, "max.block.ms", 20000);
        Producer<String, String> made = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    static Consumer<String, String> consumer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "enable.auto.commit", "false", "fetch.max.wait.ms", 100));
        config.putAll(more);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static TransactionDescription described(String id) throws Exception {
        return admin.describeTransactions(List.of(id)).description(id).get();
    }

    /** Markers may still be on their way when an end is answered. */
    static void await(String id, TransactionState expected) throws Exception {
        for (int tries = 0; described(id).state() != expected; tries++) {
            if (tries == 600) throw new AssertionError("still " + described(id).state());
            Thread.sleep(50);
        }
    }

    /** All values that are committed now, of the partitions in turn. */
    static List<String> read(String topic, int partitions) {
        List<String> found = new ArrayList<>();
        try (Consumer<String, String> consumer = consumer(Map.of())) {
            for (int partition = 0; partition < partitions; partition++) {
                TopicPartition place = new TopicPartition(topic, partition);
                consumer.assign(List.of(place));
                consumer.seekToBeginning(List.of(place));
                long end = consumer.endOffsets(List.of(place)).get(place);
                while (consumer.position(place) < end) {
                    consumer.poll(Duration.ofMillis(200)).forEach(record -> found.add(record.partition() + ":" + record.value()));
                }
            }
        }
        return found;
    }

    static void commitAndAbort() throws Exception {
        String topic = topic(2);
        try (Producer<String, String> producer = producer(topic)) {
            for (int number = 0; number < 5; number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 2; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, "" + number));
                }
                producer.flush();
                if (number % 2 == 0) producer.commitTransaction();
                else producer.abortTransaction();
            }
            await(topic, TransactionState.COMPLETE_COMMIT);
            same(described(topic).producerEpoch(), 0);
        }
        same(read(topic, 2), List.of("0:0", "0:2", "0:4", "1:0", "1:2", "1:4"));
    }

    static void fencing() throws Exception {
        String topic = topic(1);
        Producer<String, String> zombie = producer(topic);
        zombie.beginTransaction();
        zombie.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
        try (Producer<String, String> newcomer = producer(topic)) {
            newcomer.beginTransaction();
            newcomer.send(new ProducerRecord<>(topic, 0, null, "newcomer")).get();
            try {
                zombie.commitTransaction();
                throw new AssertionError("a zombie has committed");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                newcomer.commitTransaction();
            }
            await(topic, TransactionState.COMPLETE_COMMIT);
        }
        zombie.close(Duration.ZERO);
        same(read(topic, 1), List.of("0:newcomer"));
    }

    /** Copies rows; the second transaction is aborted, and its rows are read again from where the group is. */
    static void copy() throws Exception {
        String source = topic(1), sink = topic(1);
        List<String> expected = new ArrayList<>();
        try (Producer<String, String> filler = producer("fill-" + source)) {
            filler.beginTransaction();
            for (int number = 0; number < 30; number++) {
                filler.send(new ProducerRecord<>(source, 0, null, "row-" + number));
                expected.add("0:ROW-" + number);
            }
            filler.commitTransaction();
        }
        TopicPartition place = new TopicPartition(source, 0);
        Map<String, Object> group = Map.of("group.id", "g-" + sink, "max.poll.records", 10);
        try (Producer<String, String> producer = producer(sink); Consumer<String, String> consumer = consumer(group)) {
            consumer.subscribe(List.of(source));
            for (int done = 0, round = 0; done < 30; ) {
                ConsumerRecords<String, String> rows = consumer.poll(Duration.ofMillis(500));
                if (rows.isEmpty()) continue;
                producer.beginTransaction();
                long next = 0;
                for (var row : rows) {
                    producer.send(new ProducerRecord<>(sink, 0, null, row.value().toUpperCase()));
                    next = row.offset() + 1;
                }
                producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(next)), consumer.groupMetadata());
                if (round++ == 1) {
                    producer.abortTransaction();
                    consumer.seek(place, consumer.committed(java.util.Set.of(place)).get(place).offset());
                } else {
                    producer.commitTransaction();
                    done += rows.count();
                }
            }
            await(sink, TransactionState.COMPLETE_COMMIT);
            same(consumer.committed(java.util.Set.of(place)).get(place).offset(), 30L);
        }
        same(read(sink, 1), expected);
    }
}
