// The AWS SDK for Java against a broker's SQS: `java -cp 'jars/*' Sqs.java`.
// It finds the broker and its key in the environment, as any program with the SDK does; SIGNED_ENDPOINT_URL is another
// broker that wants the signatures of `skidway-key`. The SDK checks the MD5 of bodies, attributes and system attributes.
// Every check prints "ok <what>"; the first that fails ends the program with its reason.

import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.sqs.SqsAsyncClient;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.batchmanager.SqsAsyncBatchManager;
import software.amazon.awssdk.services.sqs.model.*;

public class Sqs {
    static final String TEXT = "emoji \uD83D\uDE00, CR \r, CR LF \r\n, tab \t, & < > \"quotes\" 'single', umlaut \u00fc, last \uFFFD";
    static final String OLD = "AWS.SimpleQueueService.";
    static SqsClient sqs;
    static SqsAsyncClient async;

    interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) {
        sqs = SqsClient.create();
        async = SqsAsyncClient.create();
        check("create, list, find, configure and tag queues", Sqs::queues);
        check("attributes of three types", Sqs::attributes);
        check("any text", Sqs::anyText);
        check("batches that fail in part", Sqs::batches);
        check("a long poll wakes for a message", Sqs::wakeUp);
        check("a poll that was cancelled takes nothing", Sqs::cancelled);
        check("visibility, and deliveries are counted", Sqs::visibility);
        check("FIFO: groups in order, duplicates once", Sqs::fifo);
        check("dead letters, and a task that moves them back", Sqs::deadLetters);
        check("exceptions of the SDK", Sqs::exceptions);
        check("signatures of configured keys", Sqs::signatures);
        check("the batch manager sends, receives, changes and deletes", Sqs::batchManager);
        check("the batch manager says which of a batch failed", Sqs::batchManagerFailures);
        check("records of a Kafka producer are received", Sqs::fromKafka);
        check("a message is sent to a Kafka consumer", Sqs::toKafka);
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

    static String newName(String suffix) {
        return "java-" + UUID.randomUUID() + suffix;
    }

    static String queue(Map<String, String> attributes, String suffix) {
        return sqs.createQueue(it -> it.queueName(newName(suffix)).attributesWithStrings(attributes)).queueUrl();
    }

    static String queue() {
        return queue(Map.of(), "");
    }

    static String arn(String url) {
        return attribute(url, QueueAttributeName.QUEUE_ARN);
    }

    static String attribute(String url, QueueAttributeName name) {
        return sqs.getQueueAttributes(it -> it.queueUrl(url).attributeNames(name)).attributes().get(name);
    }

    static SendMessageResponse send(String url, String body) {
        return sqs.sendMessage(it -> it.queueUrl(url).messageBody(body));
    }

    static List<Message> receive(String url, Consumer<ReceiveMessageRequest.Builder> more) {
        return sqs.receiveMessage(it -> {
            it.queueUrl(url).waitTimeSeconds(10).maxNumberOfMessages(10);
            more.accept(it);
        }).messages();
    }

    /** As many as are expected, however many polls that takes. */
    static List<Message> take(String url, int count, Consumer<ReceiveMessageRequest.Builder> more) {
        List<Message> found = new ArrayList<>();
        for (int polls = 0; found.size() < count && polls < 20; polls++) found.addAll(receive(url, more));
        same(found.size(), count);
        return found;
    }

    static Message one(String url, Consumer<ReceiveMessageRequest.Builder> more) {
        return take(url, 1, more).get(0);
    }

    static void remove(String url, Message message) {
        sqs.deleteMessage(it -> it.queueUrl(url).receiptHandle(message.receiptHandle()));
    }

    static List<String> bodies(List<Message> messages) {
        return messages.stream().map(Message::body).collect(Collectors.toList());
    }

    /** The exception of the class that is expected, with the older name of the error. */
    static <E extends SqsException> E refused(Class<E> kind, String code, int status, Check body) throws Exception {
        try {
            body.run();
        } catch (SqsException error) {
            return described(kind, code, status, error);
        }
        throw new AssertionError("nothing was refused; expected " + kind);
    }

    static <E extends SqsException> E described(Class<E> kind, String code, int status, Throwable thrown) {
        if (!kind.isInstance(thrown)) throw new AssertionError("found " + thrown + ", expected " + kind, thrown);
        E error = kind.cast(thrown);
        same(List.of(error.awsErrorDetails().errorCode(), error.statusCode()), List.of(code, status));
        if (error.requestId() == null) throw new AssertionError("no request id");
        return error;
    }

    static MessageAttributeValue text(String type, String value) {
        return MessageAttributeValue.builder().dataType(type).stringValue(value).build();
    }

    static MessageAttributeValue binary(byte... value) {
        return MessageAttributeValue.builder().dataType("Binary").binaryValue(SdkBytes.fromByteArray(value)).build();
    }

    static void queues() throws Exception {
        String prefix = newName("-");
        List<String> urls = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            String name = prefix + number;
            urls.add(sqs.createQueue(it -> it.queueName(name)
                .attributes(Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "7")).tags(Map.of("team", "a & b"))).queueUrl());
        }
        List<String> listed = new ArrayList<>();
        sqs.listQueuesPaginator(it -> it.queueNamePrefix(prefix).maxResults(2)).queueUrls().forEach(listed::add);
        same(listed, urls);
        same(sqs.listQueues(it -> it.queueNamePrefix(prefix + "none")).hasQueueUrls(), false);
        String url = urls.get(0);
        same(sqs.getQueueUrl(it -> it.queueName(prefix + "0")).queueUrl(), url);
        sqs.setQueueAttributes(it -> it.queueUrl(url).attributes(Map.of(QueueAttributeName.DELAY_SECONDS, "3")));
        var all = sqs.getQueueAttributes(it -> it.queueUrl(url).attributeNames(QueueAttributeName.ALL)).attributes();
        same(all.get(QueueAttributeName.VISIBILITY_TIMEOUT) + all.get(QueueAttributeName.DELAY_SECONDS), "73");
        same(all.get(QueueAttributeName.QUEUE_ARN), "arn:aws:sqs:us-east-1:000000000000:" + prefix + "0");
        // A name that the SDK does not know would be UNKNOWN_TO_SDK_VERSION.
        same(all.containsKey(QueueAttributeName.UNKNOWN_TO_SDK_VERSION), false);
        same(sqs.getQueueAttributes(it -> it.queueUrl(url)).hasAttributes(), false);
        sqs.tagQueue(it -> it.queueUrl(url).tags(Map.of("empty", "", "stage", "test")));
        sqs.untagQueue(it -> it.queueUrl(url).tagKeys("stage", "unknown"));
        same(sqs.listQueueTags(it -> it.queueUrl(url)).tags(), Map.of("team", "a & b", "empty", ""));
        same(sqs.listQueueTags(it -> it.queueUrl(queue())).hasTags(), false);
        sqs.addPermission(it -> it.queueUrl(url).label("may-send").awsAccountIds("111122223333").actions("SendMessage"));
        same(attribute(url, QueueAttributeName.POLICY).contains("\"may-send\""), true);
        sqs.removePermission(it -> it.queueUrl(url).label("may-send"));
        sqs.deleteQueue(it -> it.queueUrl(url));
        refused(QueueDoesNotExistException.class, OLD + "NonExistentQueue", 400, () -> sqs.getQueueUrl(it -> it.queueName(prefix + "0")));
    }

    static void attributes() {
        String url = queue();
        var attributes = Map.of("Foo", text("String", "Bar"), "size", text("Number.int", "-1.50"), "raw", binary((byte) 0, (byte) 1, (byte) -1));
        var trace = MessageSystemAttributeValue.builder().dataType("String").stringValue("Root=1-5759e988-bd862e3fe1be46a994272793").build();
        var sent = sqs.sendMessage(it -> it.queueUrl(url).messageBody("body").messageAttributes(attributes)
            .messageSystemAttributes(Map.of(MessageSystemAttributeNameForSends.AWS_TRACE_HEADER, trace)));
        same(UUID.fromString(sent.messageId()).toString(), sent.messageId());
        if (sent.md5OfMessageSystemAttributes() == null) throw new AssertionError("no MD5 of system attributes");
        Message message = one(url, it -> it.visibilityTimeout(0).messageAttributeNames("All").messageSystemAttributeNames(MessageSystemAttributeName.ALL));
        same(message.messageId(), sent.messageId());
        same(message.messageAttributes(), attributes);
        same(message.md5OfMessageAttributes(), sent.md5OfMessageAttributes());
        same(message.attributes().get(MessageSystemAttributeName.APPROXIMATE_RECEIVE_COUNT), "1");
        same(message.attributes().get(MessageSystemAttributeName.AWS_TRACE_HEADER), trace.stringValue());
        Long.parseLong(message.attributes().get(MessageSystemAttributeName.SENT_TIMESTAMP));
        Message filtered = one(url, it -> it.visibilityTimeout(0).messageAttributeNames("Fo.*", "Foo"));
        same(filtered.messageAttributes().keySet(), Collections.singleton("Foo"));
        same(filtered.md5OfMessageAttributes(), "ae7155c6026991b6d54b11589678bf9c");
        Message plain = one(url, it -> { });
        same(plain.hasAttributes() || plain.hasMessageAttributes() || plain.md5OfMessageAttributes() != null, false);
        remove(url, plain);
    }

    static void anyText() throws Exception {
        String url = queue();
        sqs.sendMessage(it -> it.queueUrl(url).messageBody(TEXT).messageAttributes(Map.of("text", text("String", TEXT))));
        Message message = one(url, it -> it.messageAttributeNames("All"));
        same(message.body(), TEXT);
        same(message.messageAttributes().get("text").stringValue(), TEXT);
        refused(InvalidMessageContentsException.class, "InvalidMessageContents", 400, () -> send(url, "bell \u0007"));
        String large = "\u00fc".repeat(1 << 19);
        send(url, large);
        same(one(url, it -> { }).body(), large);
        refused(SqsException.class, "InvalidParameterValue", 400, () -> send(url, large + "."));
    }

    static void batches() {
        String url = queue();
        var sent = sqs.sendMessageBatch(it -> it.queueUrl(url).entries(
            entry("n0", "zero"), entry("n1", "bell \u0007"), entry("n2", "two"), entry("n3", "late").toBuilder().delaySeconds(901).build()));
        same(sent.successful().stream().map(SendMessageBatchResultEntry::id).collect(Collectors.toList()), List.of("n0", "n2"));
        same(failures(sent.failed()), List.of("n1 InvalidMessageContents true", "n3 InvalidParameterValue true"));
        List<String> receipts = take(url, 2, it -> { }).stream().map(Message::receiptHandle).collect(Collectors.toList());
        var changed = sqs.changeMessageVisibilityBatch(it -> it.queueUrl(url).entries(
            change -> change.id("good").receiptHandle(receipts.get(0)).visibilityTimeout(0),
            change -> change.id("long").receiptHandle(receipts.get(1)).visibilityTimeout(43201)));
        same(changed.successful().size(), 1);
        same(failures(changed.failed()), List.of("long InvalidParameterValue true"));
        Message again = one(url, it -> { });
        var deleted = sqs.deleteMessageBatch(it -> it.queueUrl(url).entries(
            each -> each.id("a").receiptHandle(again.receiptHandle()),
            each -> each.id("b").receiptHandle(receipts.get(1)),
            each -> each.id("c").receiptHandle("fake")));
        same(deleted.successful().size(), 2);
        same(failures(deleted.failed()), List.of("c ReceiptHandleIsInvalid true"));
        // Present and empty is not the same as absent: programs ask hasFailed().
        var all = sqs.sendMessageBatch(it -> it.queueUrl(url).entries(entry("a", "good")));
        same(List.of(all.hasSuccessful(), all.hasFailed()), List.of(true, false));
        var none = sqs.sendMessageBatch(it -> it.queueUrl(url).entries(entry("a", "bell \u0007")));
        same(List.of(none.hasSuccessful(), none.hasFailed()), List.of(false, true));
    }

    static SendMessageBatchRequestEntry entry(String id, String body) {
        return SendMessageBatchRequestEntry.builder().id(id).messageBody(body).build();
    }

    static List<String> failures(List<BatchResultErrorEntry> failed) {
        return failed.stream().map(it -> it.id() + " " + it.code() + " " + it.senderFault()).collect(Collectors.toList());
    }

    static void wakeUp() throws Exception {
        String url = queue();
        var poll = CompletableFuture.supplyAsync(() -> receive(url, it -> it.waitTimeSeconds(20)));
        Thread.sleep(300);
        long sent = System.nanoTime();
        send(url, "wake up");
        same(bodies(poll.get(30, TimeUnit.SECONDS)), List.of("wake up"));
        if (System.nanoTime() - sent > 10_000_000_000L) throw new AssertionError("it slept on");
        same(sqs.receiveMessage(it -> it.queueUrl(url)).hasMessages(), false);
    }

    static void cancelled() throws Exception {
        String url = queue(Map.of("VisibilityTimeout", "600"), "");
        var poll = async.receiveMessage(it -> it.queueUrl(url).waitTimeSeconds(20));
        Thread.sleep(500);
        poll.cancel(true);
        Thread.sleep(300);
        send(url, "for the next");
        same(one(url, it -> { }).body(), "for the next");
    }

    static void visibility() {
        String url = queue(Map.of("VisibilityTimeout", "1"), "");
        send(url, "again");
        var count = MessageSystemAttributeName.APPROXIMATE_RECEIVE_COUNT;
        Message first = one(url, it -> it.messageSystemAttributeNames(count));
        Message second = one(url, it -> it.messageSystemAttributeNames(count).visibilityTimeout(600));
        same(List.of(first.attributes().get(count), second.attributes().get(count)), List.of("1", "2"));
        same(second.messageId(), first.messageId());
        same(receive(url, it -> it.waitTimeSeconds(0)), List.of());
        sqs.changeMessageVisibility(it -> it.queueUrl(url).receiptHandle(second.receiptHandle()).visibilityTimeout(0));
        Message third = one(url, it -> it.messageSystemAttributeNames(count).visibilityTimeout(600));
        same(third.attributes().get(count), "3");
        same(attribute(url, QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES_NOT_VISIBLE), "1");
        remove(url, third);
        same(attribute(url, QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES_NOT_VISIBLE), "0");
    }

    static void fifo() throws Exception {
        String url = queue(Map.of("FifoQueue", "true", "ContentBasedDeduplication", "true"), ".fifo");
        List<String> numbers = new ArrayList<>();
        for (int number = 1; number <= 3; number++) {
            for (String group : List.of("a", "b")) {
                String body = group + number;
                numbers.add(sqs.sendMessage(it -> it.queueUrl(url).messageBody(body).messageGroupId(group)).sequenceNumber());
            }
        }
        same(numbers.stream().sorted().collect(Collectors.toList()), numbers);
        var twice = IntStream.range(0, 2).mapToObj(number -> sqs.sendMessage(it ->
            it.queueUrl(url).messageBody("c1").messageGroupId("c").messageDeduplicationId("once"))).collect(Collectors.toList());
        same(twice.get(1).messageId(), twice.get(0).messageId());
        same(twice.get(1).sequenceNumber(), twice.get(0).sequenceNumber());
        Message first = one(url, it -> it.maxNumberOfMessages(1).messageSystemAttributeNames(MessageSystemAttributeName.MESSAGE_GROUP_ID));
        same(first.body() + first.attributes().get(MessageSystemAttributeName.MESSAGE_GROUP_ID), "a1a");
        List<String> others = bodies(take(url, 4, it -> { }));
        same(others.stream().filter(body -> !body.startsWith("c")).collect(Collectors.toList()), List.of("b1", "b2", "b3"));
        remove(url, first);
        same(bodies(take(url, 2, it -> { })), List.of("a2", "a3"));
        refused(SqsException.class, "MissingParameter", 400, () -> send(url, "no group"));
    }

    static void deadLetters() throws Exception {
        String dead = queue(), deadArn = arn(dead);
        String url = queue(Map.of("RedrivePolicy", "{\"deadLetterTargetArn\": \"" + deadArn + "\", \"maxReceiveCount\": \"2\"}"), "");
        same(sqs.listDeadLetterSourceQueues(it -> it.queueUrl(dead)).queueUrls(), List.of(url));
        sqs.sendMessage(it -> it.queueUrl(url).messageBody("poison").messageAttributes(Map.of("kept", text("String", "yes"))));
        for (int delivery = 0; delivery < 2; delivery++) one(url, it -> it.visibilityTimeout(0));
        same(receive(url, it -> it.waitTimeSeconds(0)), List.of());
        Message letter = one(dead, it -> it.visibilityTimeout(0).messageAttributeNames("All")
            .messageSystemAttributeNames(MessageSystemAttributeName.DEAD_LETTER_QUEUE_SOURCE_ARN));
        same(letter.body() + letter.messageAttributes().get("kept").stringValue(), "poisonyes");
        same(letter.attributes().get(MessageSystemAttributeName.DEAD_LETTER_QUEUE_SOURCE_ARN), arn(url));
        sqs.startMessageMoveTask(it -> it.sourceArn(deadArn));
        same(one(url, it -> it.messageAttributeNames("All")).messageAttributes().get("kept").stringValue(), "yes");
        ListMessageMoveTasksResultEntry task;
        long deadline = System.nanoTime() + 30_000_000_000L;
        do {
            task = sqs.listMessageMoveTasks(it -> it.sourceArn(deadArn)).results().get(0);
            if (System.nanoTime() > deadline) throw new AssertionError("the task does not end: " + task);
            Thread.sleep(20);
        } while (!"COMPLETED".equals(task.status()));
        same(task.approximateNumberOfMessagesMoved(), 1L);
        same(task.taskHandle(), null);
    }

    static void exceptions() throws Exception {
        String url = queue(), gone = url + "-gone", name = url.substring(url.lastIndexOf('/') + 1), source = arn(url) + "-gone";
        var missing = refused(QueueDoesNotExistException.class, OLD + "NonExistentQueue", 400, () -> send(gone, "x"));
        same(missing.awsErrorDetails().errorMessage(), "The specified queue does not exist.");
        refused(QueueDoesNotExistException.class, OLD + "NonExistentQueue", 400, () -> receive(gone, it -> { }));
        refused(QueueNameExistsException.class, "QueueAlreadyExists", 400,
            () -> sqs.createQueue(it -> it.queueName(name).attributes(Map.of(QueueAttributeName.DELAY_SECONDS, "5"))));
        refused(ReceiptHandleIsInvalidException.class, "ReceiptHandleIsInvalid", 404,
            () -> sqs.deleteMessage(it -> it.queueUrl(url).receiptHandle("fake")));
        refused(ReceiptHandleIsInvalidException.class, "ReceiptHandleIsInvalid", 404,
            () -> sqs.changeMessageVisibility(it -> it.queueUrl(url).receiptHandle("fake").visibilityTimeout(1)));
        refused(InvalidAttributeNameException.class, "InvalidAttributeName", 400,
            () -> sqs.getQueueAttributes(it -> it.queueUrl(url).attributeNamesWithStrings("Nope")));
        refused(InvalidAttributeValueException.class, "InvalidAttributeValue", 400,
            () -> sqs.setQueueAttributes(it -> it.queueUrl(url).attributesWithStrings(Map.of("VisibilityTimeout", "43201"))));
        refused(EmptyBatchRequestException.class, OLD + "EmptyBatchRequest", 400, () -> sendAll(url));
        refused(BatchEntryIdsNotDistinctException.class, OLD + "BatchEntryIdsNotDistinct", 400, () -> sendAll(url, "a", "a"));
        refused(InvalidBatchEntryIdException.class, OLD + "InvalidBatchEntryId", 400, () -> sendAll(url, "no blanks"));
        refused(TooManyEntriesInBatchRequestException.class, OLD + "TooManyEntriesInBatchRequest", 400,
            () -> sendAll(url, "abcdefghijk".split("")));
        sqs.purgeQueue(it -> it.queueUrl(url));
        refused(PurgeQueueInProgressException.class, OLD + "PurgeQueueInProgress", 403, () -> sqs.purgeQueue(it -> it.queueUrl(url)));
        refused(ResourceNotFoundException.class, "ResourceNotFoundException", 404, () -> sqs.startMessageMoveTask(it -> it.sourceArn(source)));
        refused(SqsException.class, "InvalidParameterValue", 400, () -> receive(url, it -> it.maxNumberOfMessages(11)));
    }

    static void sendAll(String url, String... ids) {
        List<SendMessageBatchRequestEntry> entries = new ArrayList<>();
        for (String id : ids) entries.add(entry(id, "x"));
        sqs.sendMessageBatch(it -> it.queueUrl(url).entries(entries));
    }

    static SqsClient signing(String id, String secret, Region region) {
        return SqsClient.builder().endpointOverride(URI.create(System.getenv("SIGNED_ENDPOINT_URL"))).region(region)
            .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create(id, secret))).build();
    }

    static void signatures() throws Exception {
        try (SqsClient right = signing("skidway-key", "skidway-secret", Region.US_EAST_1);
            SqsClient elsewhere = signing("skidway-key", "skidway-secret", Region.EU_WEST_1);
            SqsClient wrong = signing("skidway-key", "wrong", Region.US_EAST_1);
            SqsClient unknown = signing("unknown", "skidway-secret", Region.US_EAST_1)) {
            String url = right.createQueue(it -> it.queueName(newName(""))).queueUrl();
            right.sendMessage(it -> it.queueUrl(url).messageBody(TEXT));
            same(bodies(right.receiveMessage(it -> it.queueUrl(url).waitTimeSeconds(10)).messages()), List.of(TEXT));
            refused(SqsException.class, "SignatureDoesNotMatch", 403, wrong::listQueues);
            refused(SqsException.class, "InvalidClientTokenId", 403, unknown::listQueues);
            same(elsewhere.listQueues().queueUrls(), List.of());
        }
    }

    static void batchManager() throws Exception {
        String url = queue();
        try (SqsAsyncBatchManager manager = async.batchManager()) {
            var sending = IntStream.range(0, 25).mapToObj(number -> manager.sendMessage(it -> it.queueUrl(url).messageBody("n" + number)))
                .collect(Collectors.toList());
            List<String> ids = new ArrayList<>();
            for (var sent : sending) ids.add(sent.get(30, TimeUnit.SECONDS).messageId());
            List<Message> found = new ArrayList<>();
            for (int polls = 0; found.size() < 25 && polls < 60; polls++) {
                found.addAll(manager.receiveMessage(it -> it.queueUrl(url)).get(30, TimeUnit.SECONDS).messages());
            }
            same(found.stream().map(Message::messageId).sorted().collect(Collectors.toList()), ids.stream().sorted().collect(Collectors.toList()));
            Message back = found.get(0);
            manager.changeMessageVisibility(it -> it.queueUrl(url).receiptHandle(back.receiptHandle()).visibilityTimeout(60)).get(30, TimeUnit.SECONDS);
            var deleting = found.stream().map(message -> manager.deleteMessage(it -> it.queueUrl(url).receiptHandle(message.receiptHandle())))
                .collect(Collectors.toList());
            for (var deleted : deleting) deleted.get(30, TimeUnit.SECONDS);
        }
        same(attribute(url, QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES), "0");
        same(attribute(url, QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES_NOT_VISIBLE), "0");
    }

    static void batchManagerFailures() throws Exception {
        String url = queue();
        try (SqsAsyncBatchManager manager = async.batchManager()) {
            var good = manager.sendMessage(it -> it.queueUrl(url).messageBody("good"));
            var bad = manager.sendMessage(it -> it.queueUrl(url).messageBody("bell \u0007"));
            var nowhere = manager.sendMessage(it -> it.queueUrl(url + "-gone").messageBody("x"));
            good.get(30, TimeUnit.SECONDS);
            same(cause(bad) instanceof SqsException refusal ? refusal.awsErrorDetails().errorCode() : cause(bad), "InvalidMessageContents");
            described(QueueDoesNotExistException.class, OLD + "NonExistentQueue", 400, cause(nowhere));
            Message message = one(url, it -> { });
            var deleted = manager.deleteMessage(it -> it.queueUrl(url).receiptHandle(message.receiptHandle()));
            var fake = manager.deleteMessage(it -> it.queueUrl(url).receiptHandle("fake"));
            deleted.get(30, TimeUnit.SECONDS);
            same(cause(fake) instanceof SqsException refusal ? refusal.awsErrorDetails().errorCode() : cause(fake), "ReceiptHandleIsInvalid");
        }
    }

    static Throwable cause(CompletableFuture<?> future) {
        try {
            future.orTimeout(30, TimeUnit.SECONDS).join();
        } catch (CompletionException problem) {
            return problem.getCause();
        }
        throw new AssertionError("nothing was refused");
    }

    static void fromKafka() {
        String url = sqs.getQueueUrl(it -> it.queueName("from-kafka")).queueUrl();
        Message message = one(url, it -> it.messageAttributeNames("All"));
        same(message.body(), "by Kafka \uD83D\uDE00");
        same(message.messageAttributes(), Map.of("text", text("String", "plain"), "raw", binary((byte) -1, (byte) -2)));
        remove(url, message);
    }

    static void toKafka() {
        String url = sqs.createQueue(it -> it.queueName("to-kafka")).queueUrl();
        sqs.sendMessage(it -> it.queueUrl(url).messageBody("by SQS \uD83D\uDE00").messageAttributes(
            Map.of("text", text("String", "plain"), "size", text("Number", "17"), "raw", binary((byte) -1, (byte) -2))));
    }
}
