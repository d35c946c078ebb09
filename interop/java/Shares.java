// Share groups of Java's kafka-clients: `java -cp 'jars/*' Shares.java host:port`, or with `restart` behind it: the program
// then says when the broker may go, and goes on when it reads a line.
// Every check prints "ok <what>"; the first that fails ends the program with its reason.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class Shares {
    static final long PATIENCE_MS = 60_000;
    static String bootstrap;
    static Admin admin;

    interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 20000, "request.timeout.ms", 8000));
        if (args.length > 1) {
            check("consumers go on after a restart", Shares::restarted);
        } else {
            check("three consumers of one partition, each record once", Shares::shared);
            check("accept, release and reject, with counts", Shares::verdicts);
            check("the next poll accepts", Shares::implicit);
            check("renewed longer than the lock", Shares::renewed);
            check("a lock that ran out", Shares::expired);
            check("a limit of records", Shares::limited);
            check("closing releases", Shares::closing);
            check("only committed records", Shares::committed);
            check("groups described and listed", Shares::described);
            check("offsets listed, altered, deleted", Shares::offsets);
            check("groups deleted", Shares::deleted);
        }
        admin.close(Duration.ofSeconds(2));
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

    static void that(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void eventually(String what, Waiting condition) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.holds()) {
            that(System.currentTimeMillis() < deadline, "in vain: " + what);
            Thread.sleep(20);
        }
    }

    interface Waiting {
        boolean holds() throws Exception;
    }

    // --- what all need ---

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

    static String group(Map<String, String> more) throws Exception {
        String name = "share-" + UUID.randomUUID();
        Map<String, String> settings = new HashMap<>(Map.of("share.auto.offset.reset", "earliest"));
        settings.putAll(more);
        Collection<AlterConfigOp> changes = new ArrayList<>();
        settings.forEach((key, value) -> changes.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, name);
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        eventually("the settings of " + name, () -> {
            Config found = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            return settings.entrySet().stream().allMatch(one -> found.get(one.getKey()).value().equals(one.getValue()));
        });
        return name;
    }

    static void write(String topic, int from, int end) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "linger.ms", 0, "batch.size", 0);
        try (Producer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = from; number < end; number++) producer.send(new ProducerRecord<>(topic, 0, null, "" + number)).get();
        }
    }

    static ShareConsumer<String, String> consumer(String group, String topic, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "share.acknowledgement.mode", "explicit", "default.api.timeout.ms", 30000));
        config.putAll(more);
        ShareConsumer<String, String> made = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        made.subscribe(List.of(topic));
        return made;
    }

    static List<ConsumerRecord<String, String>> poll(ShareConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        consumer.poll(Duration.ofMillis(200)).forEach(found::add);
        return found;
    }

    /** Polls until something comes. */
    static List<ConsumerRecord<String, String>> some(ShareConsumer<String, String> consumer) throws Exception {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        eventually("records", () -> {
            found.addAll(poll(consumer));
            return !found.isEmpty();
        });
        return found;
    }

    static void commit(ShareConsumer<String, String> consumer) {
        consumer.commitSync().forEach((partition, error) -> that(error.isEmpty(), partition + ": " + error));
    }

    static long lag(String group, String topic) throws Exception {
        SharePartitionOffsetInfo found = start(group, topic);
        return found == null ? -1 : found.lag().orElse(-1L);
    }

    static SharePartitionOffsetInfo start(String group, String topic) throws Exception {
        TopicPartition place = new TopicPartition(topic, 0);
        Map<String, ListShareGroupOffsetsSpec> asked = Map.of(group, new ListShareGroupOffsetsSpec().topicPartitions(List.of(place)));
        return admin.listShareGroupOffsets(asked).partitionsToOffsetInfo(group).get().get(place);
    }

    // --- delivery ---

    static void shared() throws Exception {
        String topic = topic(1), group = group(Map.of());
        write(topic, 0, 100);
        List<ShareConsumer<String, String>> consumers = new ArrayList<>();
        for (int number = 0; number < 3; number++) consumers.add(consumer(group, topic, Map.of("max.poll.records", 10)));
        List<Long> seen = new ArrayList<>();
        eventually("a hundred records", () -> {
            for (ShareConsumer<String, String> one : consumers) {
                for (ConsumerRecord<String, String> record : poll(one)) {
                    same(record.deliveryCount(), Optional.of((short) 1));
                    seen.add(record.offset());
                    one.acknowledge(record);
                }
                commit(one);
            }
            return seen.size() >= 100;
        });
        same(new TreeSet<>(seen).size(), 100);
        same(seen.size(), 100);
        consumers.forEach(ShareConsumer::close);
        eventually("nothing is left", () -> lag(group, topic) == 0);
    }

    static void verdicts() throws Exception {
        String topic = topic(1), group = group(Map.of());
        write(topic, 0, 6);
        Map<Long, List<Integer>> counts = new TreeMap<>();
        try (ShareConsumer<String, String> one = consumer(group, topic, Map.of())) {
            eventually("all settled", () -> {
                for (ConsumerRecord<String, String> record : poll(one)) {
                    int count = record.deliveryCount().get();
                    counts.computeIfAbsent(record.offset(), offset -> new ArrayList<>()).add(count);
                    boolean again = record.offset() % 3 == 1 && count < 3;
                    one.acknowledge(record, again ? AcknowledgeType.RELEASE
                        : record.offset() % 3 == 2 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                }
                commit(one);
                return lag(group, topic) == 0;
            });
        }
        List<Integer> once = List.of(1), thrice = List.of(1, 2, 3);
        same(counts, Map.of(0L, once, 1L, thrice, 2L, once, 3L, once, 4L, thrice, 5L, once));
    }

    static void implicit() throws Exception {
        String topic = topic(1), group = group(Map.of());
        write(topic, 0, 20);
        List<Long> seen = new ArrayList<>();
        try (ShareConsumer<String, String> one = consumer(group, topic, Map.of("share.acknowledgement.mode", "implicit"))) {
            eventually("all accepted", () -> {
                poll(one).forEach(record -> seen.add(record.offset()));
                return seen.size() >= 20 && lag(group, topic) == 0;
            });
        }
        same(seen.size(), 20);
    }

    static void renewed() throws Exception {
        String topic = topic(1), group = group(Map.of("share.record.lock.duration.ms", "3000"));
        write(topic, 0, 1);
        try (ShareConsumer<String, String> one = consumer(group, topic, Map.of());
             ShareConsumer<String, String> other = consumer(group, topic, Map.of())) {
            List<ConsumerRecord<String, String>> held = some(one);
            same(one.acquisitionLockTimeoutMs(), Optional.of(3000));
            for (int number = 0; number < 8; number++) {
                one.acknowledge(held.get(0), AcknowledgeType.RENEW);
                commit(one);
                same(poll(other), List.of());
                Thread.sleep(400);
                held = some(one);
                same(held.size(), 1);
                same(held.get(0).deliveryCount(), Optional.of((short) 1));
            }
            one.acknowledge(held.get(0), AcknowledgeType.ACCEPT);
            commit(one);
        }
        same(lag(group, topic), 0L);
    }

    static void expired() throws Exception {
        String topic = topic(1), group = group(Map.of("share.record.lock.duration.ms", "1000"));
        write(topic, 0, 1);
        try (ShareConsumer<String, String> one = consumer(group, topic, Map.of());
             ShareConsumer<String, String> other = consumer(group, topic, Map.of())) {
            ConsumerRecord<String, String> late = some(one).get(0);
            ConsumerRecord<String, String> again = some(other).get(0);
            same(again.deliveryCount(), Optional.of((short) 2));
            one.acknowledge(late);
            one.commitSync().values().forEach(error -> that(error.get() instanceof InvalidRecordStateException, "" + error));
            other.acknowledge(again);
            other.commitSync();
        }
    }

    static void limited() throws Exception {
        String topic = topic(1), group = group(Map.of());
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "linger.ms", 1000);
        try (Producer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 20; number++) producer.send(new ProducerRecord<>(topic, "" + number));
        }
        Set<Long> seen = new HashSet<>();
        try (ShareConsumer<String, String> one = consumer(group, topic, Map.of("max.poll.records", 3, "share.acquire.mode", "record_limit"))) {
            eventually("all twenty", () -> {
                List<ConsumerRecord<String, String>> now = poll(one);
                that(now.size() <= 3, "more than the limit: " + now.size());
                for (ConsumerRecord<String, String> record : now) {
                    that(seen.add(record.offset()), "twice: " + record.offset());
                    one.acknowledge(record);
                }
                commit(one);
                return seen.size() == 20;
            });
        }
    }

    static void closing() throws Exception {
        String topic = topic(1), group = group(Map.of());
        write(topic, 0, 3);
        ShareConsumer<String, String> one = consumer(group, topic, Map.of());
        List<ConsumerRecord<String, String>> held = some(one);
        one.acknowledge(held.get(0));
        one.close();
        Map<Long, Short> seen = new TreeMap<>();
        try (ShareConsumer<String, String> two = consumer(group, topic, Map.of())) {
            eventually("the other two", () -> {
                for (ConsumerRecord<String, String> record : poll(two)) {
                    seen.put(record.offset(), record.deliveryCount().get());
                    two.acknowledge(record);
                }
                commit(two);
                return seen.size() >= 2;
            });
        }
        same(seen.keySet(), Set.of(1L, 2L));
        for (int number = 1; number < held.size(); number++) same(seen.get((long) number), (short) 2);
    }

    static void committed() throws Exception {
        String topic = topic(1), group = group(Map.of("share.isolation.level", "read_committed"));
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "transactional.id", "tx-" + UUID.randomUUID());
        try (Producer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int number = 0; number < 6; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "" + number));
                producer.flush();
                if (number % 2 == 0) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
        List<String> seen = new ArrayList<>();
        try (ShareConsumer<String, String> one = consumer(group, topic, Map.of())) {
            eventually("three of six", () -> {
                for (ConsumerRecord<String, String> record : poll(one)) {
                    seen.add(record.value());
                    one.acknowledge(record);
                }
                commit(one);
                return seen.size() >= 3;
            });
            same(poll(one), List.of());
        }
        same(seen, List.of("0", "2", "4"));
    }

    // --- administration ---

    static void described() throws Exception {
        String topic = topic(2), group = group(Map.of());
        try (ShareConsumer<String, String> one = consumer(group, topic, Map.of("client.id", "worker-7"))) {
            eventually("a member with two partitions", () -> {
                poll(one);
                ShareGroupDescription found = admin.describeShareGroups(List.of(group)).all().get().get(group);
                return found.members().stream().anyMatch(member -> member.assignment().topicPartitions().size() == 2);
            });
            ShareGroupDescription found = admin.describeShareGroups(List.of(group)).all().get().get(group);
            same(found.groupState(), GroupState.STABLE);
            same(found.members().iterator().next().clientId(), "worker-7");
            Collection<GroupListing> listed = admin.listGroups(ListGroupsOptions.forShareGroups()).all().get();
            that(listed.stream().anyMatch(each -> each.groupId().equals(group) && each.type().get() == GroupType.SHARE), "not listed");
        }
        same(admin.describeShareGroups(List.of(group)).all().get().get(group).groupState(), GroupState.EMPTY);
    }

    static void accept(String group, String topic, int count) throws Exception {
        try (ShareConsumer<String, String> one = consumer(group, topic, Map.of())) {
            int[] accepted = {0};
            eventually("accepted", () -> {
                for (ConsumerRecord<String, String> record : poll(one)) {
                    accepted[0]++;
                    one.acknowledge(record);
                }
                commit(one);
                return accepted[0] >= count;
            });
            same(accepted[0], count);
        }
    }

    static void offsets() throws Exception {
        String topic = topic(1), group = group(Map.of());
        TopicPartition place = new TopicPartition(topic, 0);
        // Before anybody reads it: a leader of Kafka's hears of a change only when one of its own writes fails.
        write(topic, 0, 10);
        admin.alterShareGroupOffsets(group, Map.of(place, 4L)).all().get();
        same(start(group, topic).startOffset(), 4L);
        same(lag(group, topic), 6L);
        accept(group, topic, 6);
        eventually("nothing is left", () -> lag(group, topic) == 0);
        admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get();
        Map<String, ListShareGroupOffsetsSpec> all = Map.of(group, new ListShareGroupOffsetsSpec());
        same(admin.listShareGroupOffsets(all).partitionsToOffsetInfo(group).get(), Map.of());
        try (ShareConsumer<String, String> one = consumer(group, topic, Map.of())) {
            eventually("a member", () -> {
                poll(one).forEach(one::acknowledge);
                return !admin.describeShareGroups(List.of(group)).all().get().get(group).members().isEmpty();
            });
            try {
                admin.alterShareGroupOffsets(group, Map.of(place, 0L)).all().get();
                throw new AssertionError("altered under a member");
            } catch (ExecutionException refused) {
                that(refused.getCause() instanceof GroupNotEmptyException, "" + refused.getCause());
            }
        }
    }

    static void deleted() throws Exception {
        String topic = topic(1), group = group(Map.of());
        write(topic, 0, 2);
        accept(group, topic, 2);
        admin.deleteShareGroups(List.of(group)).all().get();
        try {
            admin.describeShareGroups(List.of(group)).all().get();
            throw new AssertionError("still there");
        } catch (ExecutionException gone) {
            that(gone.getCause() instanceof GroupIdNotFoundException, "" + gone.getCause());
        }
    }

    // --- a restart ---

    static void restarted() throws Exception {
        String topic = topic(1), group = group(Map.of("share.record.lock.duration.ms", "15000"));
        write(topic, 0, 50);
        Set<Long> settled = new TreeSet<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        try (ShareConsumer<String, String> one = consumer(group, topic, Map.of("max.poll.records", 10, "share.acquire.mode", "record_limit"))) {
            settle(one, settled, 20);
            System.out.println("restart");
            input.readLine();
            settle(one, settled, 50);
        }
        same(settled.size(), 50);
        eventually("nothing is left", () -> lag(group, topic) == 0);
    }

    /** Accepts until so many acceptances were answered; none is delivered again afterwards. */
    static void settle(ShareConsumer<String, String> one, Set<Long> settled, int enough) throws Exception {
        eventually("accepted " + enough, () -> {
            Set<Long> sent = new HashSet<>();
            for (ConsumerRecord<String, String> record : poll(one)) {
                that(!settled.contains(record.offset()), "delivered after it was accepted: " + record.offset());
                sent.add(record.offset());
                one.acknowledge(record);
            }
            Map<TopicIdPartition, Optional<KafkaException>> answers = one.commitSync();
            if (!answers.isEmpty() && answers.values().stream().allMatch(Optional::isEmpty)) settled.addAll(sent);
            return settled.size() >= enough;
        });
    }
}
