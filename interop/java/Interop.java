// Java kafka-clients against a broker: `java -cp 'jars/*' Interop.java host:port`.
// Every check prints "ok <what>"; the first that fails ends the program with its reason.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.*;

public class Interop {
    static String bootstrap;
    static Admin admin;
    static final long START_MS = System.currentTimeMillis() - 3_600_000;

    interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 9000, "request.timeout.ms", 8000));
        check("cluster", Interop::cluster);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            check("idempotent producer and assigned consumer, " + codec, () -> roundTrip(codec));
        }
        check("many in-flight idempotent batches stay in order", Interop::inFlight);
        check("headers, null keys and values", Interop::shapes);
        check("record too large", Interop::tooLarge);
        check("unknown topic", Interop::unknownTopic);
        check("positions by offset and time", Interop::positions);
        check("out of range", Interop::outOfRange);
        check("log append time", Interop::logAppendTime);
        check("describe topics by name and id", Interop::describeTopics);
        check("topic errors", Interop::topicErrors);
        check("describe and alter configs", Interop::configs);
        check("create partitions", Interop::createPartitions);
        check("delete records and list offsets", Interop::deleteRecords);
        check("the end after acks=1", Interop::endAfterAcksOne);
        check("describe log dirs and move a replica", Interop::logDirs);
        check("broker settings that change nothing", Interop::idleConfigs);
        check("log levels", Interop::logLevels);
        check("access lists without an authoriser", Interop::accessLists);
        check("a transactional producer", Interop::transactions);
        check("describe producers", Interop::producers);
        check("list config resources", Interop::configResources);
        check("a topic made again", Interop::madeAgain);
        if (servesGroups()) {
            for (String protocol : List.of("classic", "consumer")) {
                check("a group of the " + protocol + " protocol shares twelve partitions", () -> sharing(protocol));
                check("a group of the " + protocol + " protocol goes on where it was", () -> goesOn(protocol));
                check("a subscribed pattern finds a new topic, " + protocol, () -> pattern(protocol));
                check("static members of the " + protocol + " protocol", () -> staticMembers(protocol));
            }
            check("cooperative rebalancing", Interop::cooperative);
            check("administration of groups", Interop::groupAdmin);
            check("a living group changes the protocol", Interop::migration);
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

    static <T extends Throwable> T refused(Class<T> kind, Future<?> future) throws Exception {
        try {
            future.get();
        } catch (ExecutionException wrapped) {
            if (kind.isInstance(wrapped.getCause())) return kind.cast(wrapped.getCause());
            throw new AssertionError("found " + wrapped.getCause() + ", expected " + kind, wrapped);
        }
        throw new AssertionError("nothing was refused, expected " + kind);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String topic(int partitions, Map<String, String> configs) throws Exception {
        String name = "java-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
        for (int tries = 0; ; tries++) {
            try {
                same(admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size(), partitions);
                return name;
            } catch (ExecutionException early) {
                if (tries == 100) throw early;
                Thread.sleep(20);
            }
        }
    }

    static String topic() throws Exception {
        return topic(1, Map.of());
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("delivery.timeout.ms", 9000);
        settings.put("request.timeout.ms", 8000);
        settings.put("max.block.ms", 8000);
        settings.putAll(more);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "none");
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<ConsumerRecord<byte[], byte[]>> take(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 9000;
        while (found.size() < count && System.currentTimeMillis() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(found::add);
        }
        same(found.size(), count);
        return found;
    }

    static void fill(String topic, int count) throws Exception {
        try (var producer = producer(Map.of())) {
            for (int index = 0; index < count; index++) {
                var record = new ProducerRecord<byte[], byte[]>(topic, 0, START_MS + 1000L * index, null, bytes("" + index));
                same(producer.send(record).get().offset(), (long) index);
            }
        }
    }

    static void cluster() throws Exception {
        var described = admin.describeCluster();
        that(!described.clusterId().get().isEmpty(), "a cluster id");
        Collection<Node> nodes = described.nodes().get();
        same(nodes.size(), 1);
        same(described.controller().get().id(), nodes.iterator().next().id());
        that(described.authorizedOperations().get() == null, "operations that nobody asked for");
        var metadata = admin.describeFeatures().featureMetadata().get();
        that(metadata.finalizedFeatures().containsKey("metadata.version"), "metadata.version is finalized");
    }

    static void roundTrip(String codec) throws Exception {
        String topic = topic(3, Map.of());
        int count = 600;
        try (var producer = producer(Map.of("compression.type", codec, "linger.ms", 5))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int index = 0; index < count; index++) {
                sent.add(producer.send(new ProducerRecord<>(topic, index % 3, bytes("k" + index), bytes("value value value " + index))));
            }
            for (int index = 0; index < count; index++) {
                same(sent.get(index).get().partition(), index % 3);
                same(sent.get(index).get().offset(), (long) index / 3);
            }
        }
        try (var consumer = consumer(Map.of())) {
            List<TopicPartition> all = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1), new TopicPartition(topic, 2));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            for (var record : take(consumer, count)) {
                long index = record.offset() * 3 + record.partition();
                same(new String(record.key()), "k" + index);
                same(new String(record.value()), "value value value " + index);
                that(record.leaderEpoch().isPresent(), "a leader epoch");
            }
        }
    }

    static void inFlight() throws Exception {
        String topic = topic();
        int count = 2000;
        try (var producer = producer(Map.of("batch.size", 200, "linger.ms", 0, "max.in.flight.requests.per.connection", 5))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int index = 0; index < count; index++) {
                sent.add(producer.send(new ProducerRecord<>(topic, bytes("" + index))));
            }
            for (int index = 0; index < count; index++) same(sent.get(index).get().offset(), (long) index);
        }
        try (var consumer = consumer(Map.of())) {
            var where = new TopicPartition(topic, 0);
            consumer.assign(List.of(where));
            consumer.seek(where, 0);
            long next = 0;
            for (var record : take(consumer, count)) same(new String(record.value()), "" + next++);
        }
    }

    static void shapes() throws Exception {
        String topic = topic();
        try (var producer = producer(Map.of())) {
            var full = new ProducerRecord<>(topic, 0, bytes(""), bytes(""));
            full.headers().add("a", bytes("1")).add("a", bytes("2")).add("none", null);
            producer.send(full).get();
            producer.send(new ProducerRecord<byte[], byte[]>(topic, 0, null, null)).get();
        }
        try (var consumer = consumer(Map.of())) {
            var where = new TopicPartition(topic, 0);
            consumer.assign(List.of(where));
            consumer.seek(where, 0);
            var found = take(consumer, 2);
            same(found.get(0).key().length + found.get(0).value().length, 0);
            List<String> headers = new ArrayList<>();
            for (Header header : found.get(0).headers()) {
                headers.add(header.key() + "=" + (header.value() == null ? null : new String(header.value())));
            }
            same(headers, List.of("a=1", "a=2", "none=null"));
            that(found.get(1).key() == null && found.get(1).value() == null, "nulls");
        }
    }

    static void tooLarge() throws Exception {
        String topic = topic(1, Map.of("max.message.bytes", "1000"));
        try (var producer = producer(Map.of())) {
            refused(RecordTooLargeException.class, producer.send(new ProducerRecord<>(topic, new byte[2000])));
            same(producer.send(new ProducerRecord<>(topic, new byte[10])).get().offset(), 0L);
        }
    }

    static void unknownTopic() throws Exception {
        refused(UnknownTopicOrPartitionException.class, admin.describeTopics(List.of("java-nowhere")).allTopicNames());
        refused(UnknownTopicIdException.class, admin.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).allTopicIds());
    }

    static void positions() throws Exception {
        String topic = topic();
        fill(topic, 50);
        var where = new TopicPartition(topic, 0);
        try (var consumer = consumer(Map.of())) {
            consumer.assign(List.of(where));
            consumer.seek(where, 20);
            same(new String(take(consumer, 30).get(0).value()), "20");
            var byTime = consumer.offsetsForTimes(Map.of(where, START_MS + 30_500)).get(where);
            same(byTime.offset(), 31L);
            same(byTime.timestamp(), START_MS + 31_000);
            that(consumer.offsetsForTimes(Map.of(where, START_MS + 50_000)).get(where) == null, "nothing so late");
            consumer.seek(where, byTime.offset());
            same(new String(take(consumer, 19).get(0).value()), "31");
            same(consumer.beginningOffsets(List.of(where)).get(where), 0L);
            same(consumer.endOffsets(List.of(where)).get(where), 50L);
            consumer.seekToEnd(List.of(where));
            same(consumer.position(where), 50L);
        }
    }

    static void outOfRange() throws Exception {
        String topic = topic();
        fill(topic, 5);
        var where = new TopicPartition(topic, 0);
        try (var consumer = consumer(Map.of())) {
            consumer.assign(List.of(where));
            consumer.seek(where, 99);
            try {
                take(consumer, 1);
                throw new IllegalStateException("nothing was refused");
            } catch (org.apache.kafka.clients.consumer.OffsetOutOfRangeException expected) {
                same(expected.offsetOutOfRangePartitions(), Map.of(where, 99L));
            }
        }
        try (var consumer = consumer(Map.of("auto.offset.reset", "earliest"))) {
            consumer.assign(List.of(where));
            consumer.seek(where, 99);
            same(take(consumer, 5).get(0).offset(), 0L);
        }
    }

    static void logAppendTime() throws Exception {
        String topic = topic(1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis();
        try (var producer = producer(Map.of())) {
            var sent = producer.send(new ProducerRecord<byte[], byte[]>(topic, 0, 5L, null, bytes("v"))).get();
            that(sent.timestamp() >= before, "the broker's time in the answer");
        }
        try (var consumer = consumer(Map.of())) {
            var where = new TopicPartition(topic, 0);
            consumer.assign(List.of(where));
            consumer.seek(where, 0);
            var record = take(consumer, 1).get(0);
            same(record.timestampType(), TimestampType.LOG_APPEND_TIME);
            that(record.timestamp() >= before, "the broker's time in the record");
        }
    }

    static void describeTopics() throws Exception {
        String topic = topic(30, Map.of());
        var byName = admin.describeTopics(List.of(topic), new DescribeTopicsOptions().partitionSizeLimitPerResponse(7)).allTopicNames().get().get(topic);
        same(byName.partitions().size(), 30);
        same(byName.partitions().stream().map(TopicPartitionInfo::partition).collect(Collectors.toSet()).size(), 30);
        that(!byName.isInternal(), "not internal");
        var byId = admin.describeTopics(TopicCollection.ofTopicIds(List.of(byName.topicId()))).allTopicIds().get().get(byName.topicId());
        same(byId.name(), topic);
        Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        that(names.contains(topic), "listed");
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(byName.topicId()))).all().get();
    }

    static void topicErrors() throws Exception {
        String there = topic();
        refused(TopicExistsException.class, admin.createTopics(List.of(new NewTopic(there, 1, (short) 1))).all());
        refused(InvalidTopicException.class, admin.createTopics(List.of(new NewTopic("with space", 1, (short) 1))).all());
        refused(InvalidPartitionsException.class, admin.createTopics(List.of(new NewTopic("java-zero", 0, (short) 1))).all());
        refused(InvalidReplicationFactorException.class, admin.createTopics(List.of(new NewTopic("java-many", 1, (short) 3))).all());
        refused(InvalidConfigurationException.class, admin.createTopics(List.of(new NewTopic("java-conf", 1, (short) 1).configs(Map.of("retention.ms", "x")))).all());
        refused(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of("java-nowhere")).all());
        String dry = "java-" + UUID.randomUUID();
        var result = admin.createTopics(List.of(new NewTopic(dry, Optional.of(4), Optional.empty())), new CreateTopicsOptions().validateOnly(true));
        same(result.numPartitions(dry).get(), 4);
        same(result.replicationFactor(dry).get(), 1);
        same(result.config(dry).get().get("cleanup.policy").value(), "delete");
        that(!admin.listTopics().names().get().contains(dry), "a dry run makes nothing");
    }

    static ConfigEntry config(ConfigResource resource, String key) throws Exception {
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(resource), options).all().get().get(resource).get(key);
    }

    static void becomes(ConfigResource resource, String key, String value) throws Exception {
        for (int tries = 0; !Objects.equals(config(resource, key).value(), value); tries++) {
            that(tries < 200, key + " never became " + value);
            Thread.sleep(20);
        }
    }

    static void alter(ConfigResource resource, String key, String value, AlterConfigOp.OpType kind) throws Exception {
        admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(key, value), kind)))).all().get();
    }

    static void configs() throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic());
        same(config(resource, "retention.ms").value(), "604800000");
        that(config(resource, "retention.ms").isDefault(), "the default");
        that(config(resource, "retention.ms").documentation() != null, "documented");
        same(config(resource, "retention.ms").type(), ConfigEntry.ConfigType.LONG);
        alter(resource, "retention.ms", "7200000", AlterConfigOp.OpType.SET);
        becomes(resource, "retention.ms", "7200000");
        same(config(resource, "retention.ms").source(), ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        same(config(resource, "retention.ms").synonyms().get(0).name(), "retention.ms");
        alter(resource, "cleanup.policy", "delete", AlterConfigOp.OpType.APPEND);
        alter(resource, "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT);
        same(config(resource, "cleanup.policy").value(), "delete");
        alter(resource, "retention.ms", null, AlterConfigOp.OpType.DELETE);
        becomes(resource, "retention.ms", "604800000");
        var bad = List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "x"), AlterConfigOp.OpType.SET));
        refused(InvalidConfigurationException.class, admin.incrementalAlterConfigs(Map.of(resource, bad)).all());
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        var broker = new ConfigResource(ConfigResource.Type.BROKER, "" + node);
        same(config(broker, "node.id").value(), "" + node);
    }

    static void createPartitions() throws Exception {
        String topic = topic();
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        for (int tries = 0; admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() != 4; tries++) {
            that(tries < 200, "never grew");
            Thread.sleep(20);
        }
        refused(InvalidPartitionsException.class, admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all());
        try (var producer = producer(Map.of())) {
            same(producer.send(new ProducerRecord<>(topic, 3, null, bytes("v"))).get().offset(), 0L);
        }
    }

    static void deleteRecords() throws Exception {
        String topic = topic();
        fill(topic, 10);
        var where = new TopicPartition(topic, 0);
        same(admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(where).get().lowWatermark(), 4L);
        same(offset(where, OffsetSpec.earliest()), 4L);
        same(offset(where, OffsetSpec.latest()), 10L);
        same(offset(where, OffsetSpec.maxTimestamp()), 9L);
        same(offset(where, OffsetSpec.forTimestamp(START_MS + 5500)), 6L);
        same(offset(where, OffsetSpec.forTimestamp(START_MS + 99_000)), -1L);
        same(offset(where, OffsetSpec.earliestLocal()), 4L);
        same(offset(where, OffsetSpec.latestTiered()), -1L);
        var beyond = admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(99))).all();
        refused(org.apache.kafka.common.errors.OffsetOutOfRangeException.class, beyond);
    }

    static long offset(TopicPartition where, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(where, spec)).partitionResult(where).get().offset();
    }

    static void logDirs() throws Exception {
        String topic = topic();
        fill(topic, 10);
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        var dirs = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
        long size = 0;
        for (var dir : dirs.values()) {
            that(dir.error() == null, "no error");
            that(dir.totalBytes().orElse(0) > 0, "the size of the volume");
            var replica = dir.replicaInfos().get(new TopicPartition(topic, 0));
            if (replica != null) size += replica.size();
        }
        that(size > 10 * 60, "the size of the partition: " + size);
        var replica = new TopicPartitionReplica(topic, 0, node);
        admin.alterReplicaLogDirs(Map.of(replica, dirs.keySet().iterator().next())).all().get();
        refused(LogDirNotFoundException.class, admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all());
    }

    static void endAfterAcksOne() throws Exception {
        String topic = topic();
        var where = new TopicPartition(topic, 0);
        try (var producer = producer(Map.of("acks", "1", "enable.idempotence", false))) {
            for (long number = 1; number <= 50; number++) {
                producer.send(new ProducerRecord<>(topic, bytes("x"))).get();
                same(admin.listOffsets(Map.of(where, OffsetSpec.latest())).partitionResult(where).get().offset(), number);
            }
        }
        admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(50))).all().get();
        same(admin.listOffsets(Map.of(where, OffsetSpec.earliest())).partitionResult(where).get().offset(), 50L);
    }

    static void idleConfigs() throws Exception {
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        var broker = new ConfigResource(ConfigResource.Type.BROKER, "" + node);
        String before = config(broker, "log.cleaner.threads").value();
        alter(broker, "log.cleaner.threads", "2", AlterConfigOp.OpType.SET);
        becomes(broker, "log.cleaner.threads", "2");
        same(config(broker, "log.cleaner.threads").source(), ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG);
        alter(broker, "log.cleaner.threads", null, AlterConfigOp.OpType.DELETE);
        becomes(broker, "log.cleaner.threads", before);
        that(config(broker, "queued.max.requests").isReadOnly(), "read at the start");
        var fixed = List.of(new AlterConfigOp(new ConfigEntry("queued.max.requests", "9"), AlterConfigOp.OpType.SET));
        refused(InvalidRequestException.class, admin.incrementalAlterConfigs(Map.of(broker, fixed)).all());
        var topic = new ConfigResource(ConfigResource.Type.TOPIC, topic(1, Map.of("cleanup.policy", "")));
        same(config(topic, "cleanup.policy").value(), "");
    }

    static void logLevels() throws Exception {
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        var loggers = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "" + node);
        String before = config(loggers, "root").value();
        alter(loggers, "root", "WARN", AlterConfigOp.OpType.SET);
        same(config(loggers, "root").value(), "WARN");
        same(config(loggers, "root").source(), ConfigEntry.ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG);
        alter(loggers, "root", before, AlterConfigOp.OpType.SET);
        var bad = List.of(new AlterConfigOp(new ConfigEntry("root", "LOUD"), AlterConfigOp.OpType.SET));
        refused(InvalidConfigurationException.class, admin.incrementalAlterConfigs(Map.of(loggers, bad)).all());
    }

    static void accessLists() throws Exception {
        var pattern = new ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL);
        var entry = new AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW);
        refused(SecurityDisabledException.class, admin.describeAcls(AclBindingFilter.ANY).values());
        refused(SecurityDisabledException.class, admin.createAcls(List.of(new AclBinding(pattern, entry))).all());
        refused(SecurityDisabledException.class, admin.deleteAcls(List.of(AclBindingFilter.ANY)).all());
    }

    static void transactions() throws Exception {
        try (var producer = producer(Map.of("transactional.id", "java-" + UUID.randomUUID()))) {
            producer.initTransactions();
        } catch (KafkaException refusal) {
            that(refusal.getMessage().contains("transactions are not available"), "a reason: " + refusal);
        }
    }

    static void producers() throws Exception {
        String topic = topic();
        fill(topic, 10);
        var where = new TopicPartition(topic, 0);
        var found = admin.describeProducers(List.of(where)).partitionResult(where).get().activeProducers();
        same(found.size(), 1);
        same(found.get(0).lastSequence(), 9);
        same(found.get(0).producerEpoch(), 0);
        that(found.get(0).currentTransactionStartOffset().isEmpty(), "no transaction");
    }

    static void configResources() throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic());
        var found = admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC), new ListConfigResourcesOptions()).all().get();
        that(found.contains(resource), "the topic is listed");
    }

    static void madeAgain() throws Exception {
        String topic = topic();
        try (var producer = producer(Map.of("metadata.max.age.ms", 500))) {
            same(producer.send(new ProducerRecord<>(topic, bytes("old"))).get().offset(), 0L);
            Uuid before = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
            admin.deleteTopics(List.of(topic)).all().get();
            for (int tries = 0; ; tries++) {
                try {
                    admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
                    break;
                } catch (ExecutionException early) {
                    if (!(early.getCause() instanceof TopicExistsException) || tries == 200) throw early;
                    Thread.sleep(20);
                }
            }
            for (int tries = 0; ; tries++) {
                try {
                    that(!admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId().equals(before), "a new id");
                    break;
                } catch (ExecutionException early) {
                    if (tries == 200) throw early;
                    Thread.sleep(20);
                }
            }
            same(producer.send(new ProducerRecord<>(topic, bytes("new"))).get().offset(), 0L);
        }
    }

    static boolean servesGroups() throws Exception {
        try {
            admin.listGroups().all().get();
            return true;
        } catch (ExecutionException refused) {
            if (!(refused.getCause() instanceof UnsupportedVersionException)) throw refused;
            System.out.println("no groups yet on this broker: " + refused.getCause().getMessage());
            return false;
        }
    }

    /** One member, polled in a thread of its own until it is closed; commits after every poll. */
    static class Member implements AutoCloseable {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<String> read = java.util.Collections.synchronizedList(new ArrayList<>());
        final Thread thread;
        volatile Set<TopicPartition> assigned = Set.of();
        volatile boolean stopped;
        volatile Throwable failure;

        Member(String group, String protocol, java.util.function.Consumer<KafkaConsumer<byte[], byte[]>> subscribe, Map<String, Object> more) {
            Map<String, Object> settings = new java.util.HashMap<>(Map.of("group.id", group, "group.protocol", protocol));
            settings.putAll(Map.of("auto.offset.reset", "earliest", "metadata.max.age.ms", 500, "fetch.max.wait.ms", 100));
            if (protocol.equals("classic")) settings.putAll(Map.of("session.timeout.ms", 6000, "heartbeat.interval.ms", 300));
            settings.putAll(more);
            consumer = consumer(settings);
            subscribe.accept(consumer);
            thread = new Thread(this::live);
            thread.start();
        }

        void live() {
            try (consumer) {
                while (!stopped) {
                    var found = consumer.poll(Duration.ofMillis(100));
                    for (var record : found) read.add(record.partition() + ":" + new String(record.value()));
                    if (!found.isEmpty()) {
                        try {
                            consumer.commitSync();
                        } catch (CommitFailedException | RebalanceInProgressException moved) {
                            // the next owner reads it again
                        }
                    }
                    assigned = Set.copyOf(consumer.assignment());
                }
            } catch (Throwable problem) {
                failure = problem;
            }
            assigned = Set.of();
        }

        @Override
        public void close() throws Exception {
            stopped = true;
            thread.join();
            if (failure != null) throw new AssertionError(failure);
        }
    }

    static Member member(String group, String protocol, String topic) {
        return new Member(group, protocol, consumer -> consumer.subscribe(List.of(topic)), Map.of());
    }

    static void eventually(String what, java.util.concurrent.Callable<Boolean> holds) throws Exception {
        long deadline = System.currentTimeMillis() + 40_000;
        while (!holds.call()) {
            that(System.currentTimeMillis() < deadline, "never: " + what);
            Thread.sleep(50);
        }
    }

    static void settle(List<Integer> shares, Member... members) throws Exception {
        eventually("shares " + shares, () -> {
            List<Integer> found = new ArrayList<>();
            Set<TopicPartition> all = new HashSet<>();
            for (Member member : members) {
                if (member.failure != null) throw new AssertionError(member.failure);
                found.add(member.assigned.size());
                all.addAll(member.assigned);
            }
            return found.stream().sorted().toList().equals(shares) && all.size() == shares.stream().mapToInt(share -> share).sum();
        });
    }

    static List<String> write(String topic, int partitions, int first, int last) throws Exception {
        List<String> sent = new ArrayList<>();
        try (var producer = producer(Map.of("linger.ms", 20))) {
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            for (int partition = 0; partition < partitions; partition++) {
                for (int number = first; number < last; number++) {
                    answers.add(producer.send(new ProducerRecord<>(topic, partition, null, bytes("" + number))));
                    sent.add(partition + ":" + number);
                }
            }
            for (var answer : answers) answer.get();
        }
        return sent;
    }

    static void allRead(List<String> sent, Member... members) throws Exception {
        eventually("everything read", () -> {
            Set<String> read = new HashSet<>();
            for (Member member : members) read.addAll(List.copyOf(member.read));
            return read.containsAll(sent);
        });
    }

    static void sharing(String protocol) throws Exception {
        String topic = topic(12, Map.of()), group = "java-" + UUID.randomUUID();
        try (var a = member(group, protocol, topic); var b = member(group, protocol, topic); var c = member(group, protocol, topic)) {
            settle(List.of(4, 4, 4), a, b, c);
            List<String> sent = write(topic, 12, 0, 20);
            allRead(sent, a, b, c);
            Thread.sleep(300);
            c.close();
            settle(List.of(6, 6), a, b);
            sent.addAll(write(topic, 12, 20, 40));
            allRead(sent, a, b, c);
            List<String> read = new ArrayList<>(a.read);
            read.addAll(b.read);
            read.addAll(c.read);
            same(read.stream().sorted().toList(), sent.stream().sorted().toList());
        }
    }

    static void goesOn(String protocol) throws Exception {
        String topic = topic(2, Map.of()), group = "java-" + UUID.randomUUID();
        List<String> first = write(topic, 2, 0, 10);
        try (var a = member(group, protocol, topic)) {
            allRead(first, a);
        }
        List<String> second = write(topic, 2, 10, 15);
        try (var a = member(group, protocol, topic)) {
            allRead(second, a);
            same(a.read.stream().sorted().toList(), second.stream().sorted().toList());
        }
    }

    static void pattern(String protocol) throws Exception {
        String topic = topic(2, Map.of()), group = "java-" + UUID.randomUUID();
        var wanted = topic + ".*";
        java.util.function.Consumer<KafkaConsumer<byte[], byte[]>> subscribe = consumer -> {
            if (protocol.equals("consumer")) consumer.subscribe(new SubscriptionPattern(wanted));
            else consumer.subscribe(java.util.regex.Pattern.compile(wanted));
        };
        try (var a = new Member(group, protocol, subscribe, Map.of())) {
            settle(List.of(2), a);
            admin.createTopics(List.of(new NewTopic(topic + "-b", 3, (short) 1))).all().get();
            settle(List.of(5), a);
        }
    }

    static void staticMembers(String protocol) throws Exception {
        String topic = topic(4, Map.of()), group = "java-" + UUID.randomUUID();
        java.util.function.Function<String, Member> start = name ->
            new Member(group, protocol, consumer -> consumer.subscribe(List.of(topic)), Map.of("group.instance.id", name));
        try (var stays = start.apply("stays"); var goes = start.apply("goes")) {
            settle(List.of(2, 2), stays, goes);
            var mine = stays.assigned;
            var others = goes.assigned;
            goes.close();
            try (var again = start.apply("goes")) {
                settle(List.of(2, 2), stays, again);
                same(again.assigned, others);
                same(stays.assigned, mine);
            }
        }
    }

    static void cooperative() throws Exception {
        String topic = topic(6, Map.of()), group = "java-" + UUID.randomUUID();
        Map<String, Object> sticky = Map.of("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        java.util.function.Supplier<Member> start = () -> new Member(group, "classic", consumer -> consumer.subscribe(List.of(topic)), sticky);
        try (var a = start.get()) {
            settle(List.of(6), a);
            var before = a.assigned;
            try (var b = start.get()) {
                settle(List.of(3, 3), a, b);
                that(before.containsAll(a.assigned), "what it keeps it had");
                List<String> sent = write(topic, 6, 0, 5);
                allRead(sent, a, b);
            }
        }
    }

    static void groupAdmin() throws Exception {
        String topic = topic(2, Map.of()), group = "java-" + UUID.randomUUID();
        var where = new TopicPartition(topic, 0);
        List<String> sent = write(topic, 2, 0, 10);
        try (var a = member(group, "classic", topic)) {
            allRead(sent, a);
            var described = admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
            same(described.groupState(), GroupState.STABLE);
            same(described.type(), GroupType.CLASSIC);
            same(described.members().iterator().next().assignment().topicPartitions().size(), 2);
            refused(GroupNotEmptyException.class, admin.deleteConsumerGroups(List.of(group)).all());
            refused(GroupSubscribedToTopicException.class, admin.deleteConsumerGroupOffsets(group, Set.of(where)).partitionResult(where));
            that(admin.listGroups().all().get().stream().anyMatch(found -> found.groupId().equals(group)), "listed");
        }
        admin.alterConsumerGroupOffsets(group, Map.of(where, new OffsetAndMetadata(4, "four"))).all().get();
        var offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        same(offsets.get(where), new OffsetAndMetadata(4, "four"));
        same(offsets.get(new TopicPartition(topic, 1)).offset(), 10L);
        admin.deleteConsumerGroupOffsets(group, Set.of(where)).all().get();
        that(!admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().containsKey(where), "deleted");
        admin.deleteConsumerGroups(List.of(group)).all().get();
        refused(GroupIdNotFoundException.class, admin.describeConsumerGroups(List.of(group)).describedGroups().get(group));
    }

    static void migration() throws Exception {
        String topic = topic(4, Map.of()), group = "java-" + UUID.randomUUID();
        try (var old = member(group, "classic", topic)) {
            settle(List.of(4), old);
            List<String> sent = write(topic, 4, 0, 10);
            allRead(sent, old);
            try (var young = member(group, "consumer", topic)) {
                settle(List.of(2, 2), old, young);
                same(admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get().type(), GroupType.CONSUMER);
                sent.addAll(write(topic, 4, 10, 20));
                allRead(sent, old, young);
            }
            settle(List.of(4), old);
            same(admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get().type(), GroupType.CLASSIC);
            sent.addAll(write(topic, 4, 20, 30));
        }
    }
}
