// Transactions of Java's kafka-clients, at every level of `transaction.version`: `java -cp 'jars/*' Transactions.java host:port`.
// At level 2 a producer takes a new epoch at every end; below it keeps the one it has. The cluster ends at level 2.
// Every check prints "ok <what>"; the first that fails ends the program with its reason.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class Transactions {
    static String bootstrap;
    static Admin admin;

    interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 20000, "request.timeout.ms", 8000));
        check("transactions of version 2 are finalized", Transactions::feature);
        checks(2);
        try {
            check("downgrade to version 1", () -> change(1));
            checks(1);
            check("downgrade to version 0", () -> change(0));
            check("commit and abort over several partitions at version 0", Transactions::commitAndAbort);
            check("a newcomer fences a zombie at version 0", Transactions::fencing);
            check("read, process and write at version 0", () -> copy("consumer"));
            check("a producer goes on while the version changes", Transactions::changingOver);
            check("what cannot be is refused", Transactions::refused);
        } finally {
            change(2);
        }
        admin.close(Duration.ofSeconds(2));
        System.exit(0);
    }

    static void checks(int level) {
        String at = " at version " + level;
        check("commit and abort over several partitions" + at, Transactions::commitAndAbort);
        check("epochs" + at, () -> epochs(level == 2 ? 5 : 0));
        check("many batches in flight" + at, Transactions::inFlight);
        check("empty transactions" + at, Transactions::empty);
        check("a newcomer fences a zombie" + at, Transactions::fencing);
        check("a transaction that takes too long" + at, Transactions::timeout);
        for (String protocol : List.of("classic", "consumer")) {
            check("read, process and write, group protocol " + protocol + at, () -> copy(protocol));
        }
        check("list and describe" + at, Transactions::listAndDescribe);
        check("fence producers" + at, Transactions::fenceProducers);
        check("terminate a transaction by its id" + at, Transactions::terminate);
        check("abort a transaction in its partition" + at, Transactions::abortInPartition);
    }

    static void check(String what, Check body) {
        try {
            body.run();
            System.out.println("ok " + what);
        } catch (Throwable problem) {
            System.out.println("FAIL " + what);
            problem.printStackTrace(System.out);
            try {
                change(2);
            } catch (Exception gone) {
                System.out.println("the level stays: " + gone);
            }
            System.exit(1);
        }
    }

    static void same(Object found, Object expected) {
        if (!Objects.equals(found, expected)) throw new AssertionError("found " + found + ", expected " + expected);
    }

    static void that(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static String topic(int partitions) throws Exception {
        String name = "java-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        for (int tries = 0; ; tries++) {
            try {
                admin.describeTopics(List.of(name)).allTopicNames().get();
                return name;
            } catch (ExecutionException missing) {
                if (tries == 100) throw missing;
                Thread.sleep(50);
            }
        }
    }

    static Producer<String, String> producer(String id, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "transactional.id", id, "max.block.ms", 20000));
        config.putAll(more);
        Producer<String, String> made = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    static Producer<String, String> producer(String id) {
        return producer(id, Map.of());
    }

    static void send(Producer<String, String> producer, String topic, int partition, String value) {
        producer.send(new ProducerRecord<>(topic, partition, null, value));
    }

    static Consumer<String, String> consumer(String isolation, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation,
            "auto.offset.reset", "earliest", "enable.auto.commit", "false", "fetch.max.wait.ms", 100));
        config.putAll(more);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    /** All values that are there now. */
    static List<String> read(String topic, int partition, String isolation) {
        try (Consumer<String, String> consumer = consumer(isolation, Map.of())) {
            TopicPartition place = new TopicPartition(topic, partition);
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            List<String> found = new ArrayList<>();
            while (consumer.position(place) < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> found.add(record.value()));
            }
            return found;
        }
    }

    /** Markers may still be on their way when a commit is answered. */
    static void eventually(String topic, int partition, List<String> expected) throws Exception {
        for (int tries = 0; ; tries++) {
            List<String> found = read(topic, partition, "read_committed");
            if (found.equals(expected)) return;
            that(tries < 100, "found " + found + ", expected " + expected);
            Thread.sleep(50);
        }
    }

    static String state(String id) throws Exception {
        return admin.describeTransactions(List.of(id)).description(id).get().state().toString();
    }

    static void await(String id, String expected) throws Exception {
        for (int tries = 0; !state(id).equals(expected); tries++) {
            that(tries < 600, "still " + state(id));
            Thread.sleep(50);
        }
    }

    static int level() throws Exception {
        FinalizedVersionRange found = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version");
        return found == null ? 0 : found.maxVersionLevel();
    }

    static void feature() throws Exception {
        same(level(), 2);
        SupportedVersionRange supported = admin.describeFeatures().featureMetadata().get().supportedFeatures().get("transaction.version");
        same(supported.minVersion(), (short) 0);
        same(supported.maxVersion(), (short) 2);
    }

    static void update(int level, FeatureUpdate.UpgradeType type, boolean validateOnly) throws Exception {
        admin.updateFeatures(Map.of("transaction.version", new FeatureUpdate((short) level, type)),
            new UpdateFeaturesOptions().validateOnly(validateOnly)).all().get();
    }

    static void change(int level) throws Exception {
        if (level() == level) return;
        update(level, level > level() ? FeatureUpdate.UpgradeType.UPGRADE : FeatureUpdate.UpgradeType.SAFE_DOWNGRADE, false);
        for (int tries = 0; level() != level; tries++) {
            that(tries < 100, "still " + level());
            Thread.sleep(50);
        }
    }

    static void refused() throws Exception {
        int before = level();
        update(before, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE, true);
        for (int level : new int[] {3, 1000}) {
            try {
                update(level, FeatureUpdate.UpgradeType.UPGRADE, false);
                throw new AssertionError("there is no level " + level);
            } catch (ExecutionException expected) {
                that(expected.getCause() instanceof InvalidUpdateVersionException, "found " + expected.getCause());
            }
        }
        same(level(), before);
    }

    /** It hears of another version by a connection that it opens later, or never; either way it goes on. */
    static void changingOver() throws Exception {
        String topic = topic(1);
        List<String> expected = new ArrayList<>();
        try (Producer<String, String> producer = producer(topic, Map.of("connections.max.idle.ms", 100))) {
            for (int level : new int[] {0, 2, 1, 2, 0}) {
                change(level);
                Thread.sleep(300);
                for (int number = 0; number < 3; number++) {
                    producer.beginTransaction();
                    // Written before the commit: a producer changes over at that moment, and what it has not sent by then
                    // it would send by the other version's rules.
                    producer.send(new ProducerRecord<>(topic, 0, null, level + "-" + number)).get();
                    producer.commitTransaction();
                    expected.add(level + "-" + number);
                }
            }
        }
        eventually(topic, 0, expected);
    }

    static void commitAndAbort() throws Exception {
        String first = topic(3), second = topic(2);
        try (Producer<String, String> producer = producer(first)) {
            for (int number = 0; number < 6; number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 3; partition++) send(producer, first, partition, "" + number);
                for (int partition = 0; partition < 2; partition++) send(producer, second, partition, "" + number);
                if (number % 2 == 0) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
        for (int partition = 0; partition < 3; partition++) eventually(first, partition, List.of("0", "2", "4"));
        for (int partition = 0; partition < 2; partition++) eventually(second, partition, List.of("0", "2", "4"));
    }

    static void epochs(int expected) throws Exception {
        String topic = topic(1);
        try (Producer<String, String> producer = producer(topic)) {
            for (int number = 0; number < 5; number++) {
                producer.beginTransaction();
                send(producer, topic, 0, "" + number);
                producer.commitTransaction();
            }
            await(topic, "CompleteCommit");
            same(admin.describeTransactions(List.of(topic)).description(topic).get().producerEpoch(), expected);
        }
    }

    static void inFlight() throws Exception {
        String topic = topic(2);
        List<String> even = new ArrayList<>();
        try (Producer<String, String> producer = producer(topic, Map.of("batch.size", 500, "linger.ms", 0))) {
            for (int round = 0; round < 3; round++) {
                producer.beginTransaction();
                for (int number = 0; number < 1000; number++) {
                    String value = round + "-" + number;
                    send(producer, topic, number % 2, value);
                    if (number % 2 == 0 && round != 1) even.add(value);
                }
                if (round == 1) producer.abortTransaction();
                else producer.commitTransaction();
            }
        }
        eventually(topic, 0, even);
    }

    static void empty() throws Exception {
        String topic = topic(1);
        try (Producer<String, String> producer = producer(topic)) {
            for (int number = 0; number < 3; number++) {
                producer.beginTransaction();
                if (number % 2 == 0) producer.commitTransaction();
                else producer.abortTransaction();
            }
            producer.beginTransaction();
            send(producer, topic, 0, "a");
            producer.commitTransaction();
        }
        eventually(topic, 0, List.of("a"));
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
                // as it should
            }
            newcomer.commitTransaction();
        }
        zombie.close(Duration.ZERO);
        eventually(topic, 0, List.of("newcomer"));
    }

    static void timeout() throws Exception {
        String topic = topic(1);
        Producer<String, String> late = producer(topic, Map.of("transaction.timeout.ms", 1000));
        late.beginTransaction();
        late.send(new ProducerRecord<>(topic, 0, null, "late")).get();
        await(topic, "CompleteAbort");
        try {
            late.commitTransaction();
            throw new AssertionError("what was aborted is committed");
        } catch (KafkaException expected) {
            late.close(Duration.ZERO);
        }
        try (Producer<String, String> again = producer(topic)) {
            again.beginTransaction();
            send(again, topic, 0, "again");
            again.commitTransaction();
        }
        eventually(topic, 0, List.of("again"));
    }

    static void copy(String protocol) throws Exception {
        String source = topic(2), sink = topic(1), group = "g-" + source;
        try (Producer<String, String> filler = producer("fill-" + source)) {
            filler.beginTransaction();
            for (int number = 0; number < 40; number++) send(filler, source, number % 2, "row-" + number);
            filler.commitTransaction();
        }
        // Twice it ends before it has committed, and another goes on.
        for (int attempt = 0; attempt < 3; attempt++) copyRows(protocol, source, sink, group, attempt < 2);
        try (Consumer<String, String> looking = consumer("read_committed", Map.of("group.id", group))) {
            Map<TopicPartition, OffsetAndMetadata> found =
                looking.committed(Set.of(new TopicPartition(source, 0), new TopicPartition(source, 1)));
            // Behind the rows is the marker of the transaction that wrote them.
            found.values().forEach(one -> that(one.offset() >= 20, "committed " + one));
        }
        List<String> written = new ArrayList<>(read(sink, 0, "read_committed"));
        same(written.size(), 40);
        same(Set.copyOf(written).size(), 40);
    }

    static void copyRows(String protocol, String source, String sink, String group, boolean crash) throws Exception {
        int left = 40 - (int) read(sink, 0, "read_committed").size();
        Map<String, Object> more = Map.of("group.id", group, "group.protocol", protocol, "max.poll.records", 10);
        Producer<String, String> producer = producer("copy-" + source);
        try (Consumer<String, String> consumer = consumer("read_committed", more)) {
            consumer.subscribe(List.of(source));
            for (int done = 0; done < left; ) {
                ConsumerRecords<String, String> rows = consumer.poll(Duration.ofMillis(500));
                if (rows.isEmpty()) continue;
                producer.beginTransaction();
                rows.forEach(row -> send(producer, sink, 0, row.value().toUpperCase()));
                producer.sendOffsetsToTransaction(rows.nextOffsets(), consumer.groupMetadata());
                if (crash && done > 0) {
                    producer.flush();
                    break;
                }
                producer.commitTransaction();
                done += rows.count();
            }
        }
        String id = "copy-" + source;
        if (!crash) await(id, "CompleteCommit");
        producer.close(Duration.ZERO);
    }

    static void listAndDescribe() throws Exception {
        String topic = topic(2);
        try (Producer<String, String> producer = producer(topic)) {
            same(state(topic), "Empty");
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 1, null, "v")).get();
            TransactionDescription found = admin.describeTransactions(List.of(topic)).description(topic).get();
            same(found.state(), TransactionState.ONGOING);
            same(found.topicPartitions(), Set.of(new TopicPartition(topic, 1)));
            that(found.transactionStartTimeMs().isPresent(), "it has begun");
            ListTransactionsOptions options = new ListTransactionsOptions()
                .filterStates(Set.of(TransactionState.ONGOING)).filterOnTransactionalIdPattern("java-.*");
            that(admin.listTransactions(options).all().get().stream().anyMatch(one -> one.transactionalId().equals(topic)), "listed");
            ListTransactionsOptions old = new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING)).filterOnDuration(600_000);
            that(admin.listTransactions(old).all().get().stream().noneMatch(one -> one.transactionalId().equals(topic)), "not old");
            producer.commitTransaction();
            await(topic, "CompleteCommit");
        }
        try {
            admin.describeTransactions(List.of("nobody")).description("nobody").get();
            throw new AssertionError("nobody is described");
        } catch (ExecutionException refused) {
            that(refused.getCause() instanceof TransactionalIdNotFoundException, "found " + refused.getCause());
        }
    }

    static void fenceProducers() throws Exception {
        String topic = topic(1);
        Producer<String, String> producer = producer(topic);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, "v")).get();
        admin.fenceProducers(List.of(topic)).all().get();
        try {
            producer.commitTransaction();
            throw new AssertionError("a fenced producer has committed");
        } catch (KafkaException expected) {
            producer.close(Duration.ZERO);
        }
        eventually(topic, 0, List.of());
    }

    static void terminate() throws Exception {
        String topic = topic(1);
        Producer<String, String> producer = producer(topic);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, "v")).get();
        admin.forceTerminateTransaction(topic).result().get();
        same(read(topic, 0, "read_committed"), List.of());
        producer.close(Duration.ZERO);
    }

    static void abortInPartition() throws Exception {
        String topic = topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        Producer<String, String> producer = producer(topic);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, "hangs")).get();
        ProducerState open = admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers().get(0);
        same(open.currentTransactionStartOffset().getAsLong(), 0L);
        AbortTransactionSpec spec = new AbortTransactionSpec(
            place, open.producerId(), (short) open.producerEpoch(), open.coordinatorEpoch().orElse(0));
        admin.abortTransaction(spec).all().get();
        same(read(topic, 0, "read_uncommitted"), List.of("hangs"));
        same(read(topic, 0, "read_committed"), List.of());
        producer.close(Duration.ZERO);
    }
}
