// Kafka Streams with exactly_once_v2, killed and started again: `java -cp 'classes:jars/*' WordCount host:port`.
// Words are counted by a process of its own that is killed a few times while words come in. Every word that comes in has
// one count that goes out, so the counts of each word must be 1, 2, 3, … without a gap and without a repetition.
// A kill proves something only if it meets an open transaction, so those are counted too.

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

public class WordCount {
    static final int LINES = 1600;
    static final int KILLS = 3;
    static final List<String> WORDS = List.of("apple", "pear", "plum", "fig", "lemon");
    static final long PATIENCE_MS = 180_000;

    public static void main(String[] args) throws Exception {
        if (args.length > 1) {
            count(args[0], args[1], args[2]);
            return;
        }
        String name = "wordcount-" + UUID.randomUUID();
        Path state = Files.createTempDirectory("wordcount");
        try {
            int met = check(args[0], name, state);
            System.out.println("ok a Streams word count is exact after " + KILLS + " kills, " + met + " in open transactions");
            forget(state);
            System.exit(0);
        } catch (Throwable problem) {
            System.out.println("FAIL");
            problem.printStackTrace(System.out);
            System.exit(1);
        }
    }

    // ---------------------------------------------------------------------------------- the process that is killed

    static void count(String bootstrap, String name, String state) {
        Properties config = new Properties();
        config.putAll(Map.of("application.id", name, "bootstrap.servers", bootstrap, "state.dir", state,
            "processing.guarantee", "exactly_once_v2", "commit.interval.ms", 300, "statestore.cache.max.bytes", 0,
            "default.key.serde", Serdes.StringSerde.class, "default.value.serde", Serdes.StringSerde.class));
        config.putAll(Map.of("replication.factor", 1, "auto.offset.reset", "earliest", "session.timeout.ms", 6000,
            "heartbeat.interval.ms", 1000, "producer.transaction.timeout.ms", 5000));
        // Who comes back under the same name need not wait until the one that was killed is missed. What it had in memory
        // comes back from the changelog.
        config.putAll(Map.of("group.instance.id", "counter", "producer.linger.ms", 0,
            "dsl.store.suppliers.class", BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class));
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(name + "-lines")
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .peek((word, number) -> LockSupport.parkNanos(2_000_000))  // so that a kill meets it at work
            .to(name + "-counts", Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(problem -> {
            problem.printStackTrace(System.out);
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
    }

    static Process start(String bootstrap, String name, Path state) throws Exception {
        // Quick to start rather than quick to run.
        List<String> command = List.of(ProcessHandle.current().info().command().get(), "-Xmx256M", "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC", "-cp", System.getProperty("java.class.path"), "WordCount", bootstrap, name, state.toString());
        return new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(state.resolve("worker.log").toFile()).start();
    }

    // --------------------------------------------------------------------------------------------------- the check

    static int check(String bootstrap, String name, Path state) throws Exception {
        int met = 0;
        Map<String, Integer> expected = new TreeMap<>();
        topics(bootstrap, name);
        Process worker = start(bootstrap, name, state);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap)); Consumer<String, Long> output = output(bootstrap, name)) {
            Map<String, List<Long>> counts = new TreeMap<>();
            try (Producer<String, String> input = input(bootstrap)) {
                for (int part = 0; part <= KILLS; part++) {
                    fill(input, name, part, expected);
                    if (part == KILLS) break;
                    // Somewhere in the middle of what it has to do.
                    read(output, counts, total(counts) + 50, worker, state);
                    long deadline = System.currentTimeMillis() + 5000;
                    while (!open(admin, name) && System.currentTimeMillis() < deadline) Thread.sleep(5);
                    worker.destroyForcibly().waitFor(10, TimeUnit.SECONDS);
                    if (open(admin, name)) met++;
                    worker = start(bootstrap, name, state);
                }
            }
            int words = expected.values().stream().mapToInt(Integer::intValue).sum();
            read(output, counts, words, worker, state);
            for (Map.Entry<String, Integer> word : expected.entrySet()) {
                List<Long> found = counts.getOrDefault(word.getKey(), List.of());
                for (int number = 1; number <= word.getValue(); number++) {
                    long next = number <= found.size() ? found.get(number - 1) : -1;
                    if (next != number) throw new AssertionError(word.getKey() + ": count " + next + " where " + number + " was expected");
                }
                if (found.size() != word.getValue()) throw new AssertionError(word.getKey() + " was counted " + found.size() + " times");
            }
            if (met == 0) throw new AssertionError("no kill has met an open transaction");
            return met;
        } finally {
            worker.destroyForcibly().waitFor(10, TimeUnit.SECONDS);
        }
    }

    static void topics(String bootstrap, String name) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(name + "-lines", 2, (short) 1), new NewTopic(name + "-counts", 2, (short) 1)))
                .all().get();
        }
    }

    static boolean open(Admin admin, String name) throws Exception {
        var ongoing = new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING)).filterOnTransactionalIdPattern(name + ".*");
        return !admin.listTransactions(ongoing).all().get().isEmpty();
    }

    static void forget(Path folder) throws Exception {
        try (var all = Files.walk(folder)) {
            for (Path one : all.sorted(Comparator.reverseOrder()).toList()) Files.delete(one);
        }
    }

    static Producer<String, String> input(String bootstrap) {
        return new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer());
    }

    static void fill(Producer<String, String> input, String name, int part, Map<String, Integer> expected) {
        for (int line = 0; line < LINES / (KILLS + 1); line++) {
            String first = WORDS.get((line * 7 + part) % WORDS.size()), second = WORDS.get((line * line + part) % WORDS.size());
            input.send(new ProducerRecord<>(name + "-lines", line % 2, null, first + " " + second));
            expected.merge(first, 1, Integer::sum);
            expected.merge(second, 1, Integer::sum);
        }
        input.flush();
    }

    static Consumer<String, Long> output(String bootstrap, String name) {
        Consumer<String, Long> made = new KafkaConsumer<>(Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest"), new StringDeserializer(), new LongDeserializer());
        made.assign(List.of(new TopicPartition(name + "-counts", 0), new TopicPartition(name + "-counts", 1)));
        return made;
    }

    static int total(Map<String, List<Long>> counts) {
        return counts.values().stream().mapToInt(List::size).sum();
    }

    static void read(Consumer<String, Long> output, Map<String, List<Long>> counts, int wanted, Process worker, Path state) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (total(counts) < wanted) {
            for (ConsumerRecord<String, Long> one : output.poll(Duration.ofMillis(200))) {
                counts.computeIfAbsent(one.key(), key -> new ArrayList<>()).add(one.value());
            }
            if (!worker.isAlive() || System.currentTimeMillis() > deadline) {
                throw new AssertionError(total(counts) + " of " + wanted + " counts; worker: " + Files.readString(state.resolve("worker.log")));
            }
        }
    }
}
