// The AWS SDK for Go against a broker's SQS: `go run .`.
// It finds the broker and its key in the environment, as any program with the SDK does; SIGNED_ENDPOINT_URL is another
// broker that wants the signatures of `skidway-key`. The SDK checks the MD5 of every body that it sends and receives.
// A zero for the visibility or the wait of a receive is not sent: then the queue's own value counts.
// Every check prints "ok <what>"; the first that fails ends the program with its reason.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const text = "emoji 😀, CR \r, CR LF \r\n, tab \t, & < > \"quotes\" 'single', umlaut ü, last \uFFFD"

var client *sqs.Client
var serial int

func main() {
	loaded, err := config.LoadDefaultConfig(context.Background())
	must(err)
	client = sqs.NewFromConfig(loaded)
	check("create, list, find, configure and tag queues", queues)
	check("attributes of three types", attributes)
	check("any text", anyText)
	check("batches that fail in part", batches)
	check("a long poll wakes for a message", wakeUp)
	check("a poll that was cancelled takes nothing", cancelled)
	check("visibility, and deliveries are counted", visibility)
	check("FIFO: groups in order, duplicates once", fifo)
	check("dead letters, and a task that moves them back", deadLetters)
	check("exceptions of the SDK", refusals)
	check("signatures of configured keys", signatures)
	check("records of a Kafka producer are received", fromKafka)
	check("a message is sent to a Kafka consumer", toKafka)
}

func check(what string, body func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	defer func() {
		if problem := recover(); problem != nil {
			fmt.Printf("FAIL %s\n%v\n", what, problem)
			os.Exit(1)
		}
	}()
	body(ctx)
	fmt.Println("ok", what)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func done[Answer any](answer Answer, err error) Answer {
	must(err)
	return answer
}

func same(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprintf("found %v, expected %v", found, expected))
	}
}

func newName() string {
	serial++
	return fmt.Sprintf("go-%d-%d", time.Now().UnixNano(), serial)
}

func queue(ctx context.Context, attributes map[string]string) *string {
	name := newName()
	if attributes["FifoQueue"] == "true" {
		name += ".fifo"
	}
	return done(client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})).QueueUrl
}

func attribute(ctx context.Context, url *string, name types.QueueAttributeName) string {
	asked := &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: []types.QueueAttributeName{name}}
	return done(client.GetQueueAttributes(ctx, asked)).Attributes[string(name)]
}

func send(ctx context.Context, url *string, body string) *sqs.SendMessageOutput {
	return done(client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: &body}))
}

// Asks for everything, and waits unless it is told not to.
func receive(ctx context.Context, url *string, waitSeconds int32) []types.Message {
	return done(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: waitSeconds, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})).Messages
}

// As many as are expected, however many polls that takes.
func take(ctx context.Context, url *string, count int) []types.Message {
	var found []types.Message
	for polls := 0; len(found) < count && polls < 20; polls++ {
		found = append(found, receive(ctx, url, 10)...)
	}
	same(len(found), count)
	return found
}

func remove(ctx context.Context, url *string, message types.Message) {
	done(client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: message.ReceiptHandle}))
}

func release(ctx context.Context, url *string, message types.Message, seconds int32) {
	done(client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: url, ReceiptHandle: message.ReceiptHandle, VisibilityTimeout: seconds,
	}))
}

func bodies(messages []types.Message) []string {
	var found []string
	for _, message := range messages {
		found = append(found, *message.Body)
	}
	return found
}

func value(kind, value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: &kind, StringValue: &value}
}

func binary(value ...byte) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: value}
}

func queues(ctx context.Context) {
	prefix := newName() + "-"
	var urls []string
	for number := 0; number < 3; number++ {
		made := done(client.CreateQueue(ctx, &sqs.CreateQueueInput{
			QueueName: aws.String(fmt.Sprint(prefix, number)), Attributes: map[string]string{"VisibilityTimeout": "7"},
			Tags: map[string]string{"team": "a & b"},
		}))
		urls = append(urls, *made.QueueUrl)
	}
	var listed []string
	pages := sqs.NewListQueuesPaginator(client, &sqs.ListQueuesInput{QueueNamePrefix: &prefix, MaxResults: aws.Int32(2)})
	for pages.HasMorePages() {
		listed = append(listed, done(pages.NextPage(ctx)).QueueUrls...)
	}
	same(listed, urls)
	url, name := &urls[0], prefix+"0"
	same(*done(client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})).QueueUrl, *url)
	done(client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: url, Attributes: map[string]string{"DelaySeconds": "3"}}))
	all := []types.QueueAttributeName{types.QueueAttributeNameAll}
	found := done(client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: all})).Attributes
	same([]string{found["VisibilityTimeout"], found["DelaySeconds"]}, []string{"7", "3"})
	same(found["QueueArn"], "arn:aws:sqs:us-east-1:000000000000:"+name)
	done(client.TagQueue(ctx, &sqs.TagQueueInput{QueueUrl: url, Tags: map[string]string{"empty": "", "stage": "test"}}))
	done(client.UntagQueue(ctx, &sqs.UntagQueueInput{QueueUrl: url, TagKeys: []string{"stage", "unknown"}}))
	tags := done(client.ListQueueTags(ctx, &sqs.ListQueueTagsInput{QueueUrl: url})).Tags
	same(tags, map[string]string{"team": "a & b", "empty": ""})
	label := aws.String("may-send")
	done(client.AddPermission(ctx, &sqs.AddPermissionInput{
		QueueUrl: url, Label: label, AWSAccountIds: []string{"111122223333"}, Actions: []string{"SendMessage"},
	}))
	same(strings.Contains(attribute(ctx, url, types.QueueAttributeNamePolicy), `"may-send"`), true)
	done(client.RemovePermission(ctx, &sqs.RemovePermissionInput{QueueUrl: url, Label: label}))
	done(client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: url}))
	_, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
	refused[*types.QueueDoesNotExist](err, old+"NonExistentQueue", 400)
}

func attributes(ctx context.Context) {
	url := queue(ctx, map[string]string{"VisibilityTimeout": "0"})
	given := map[string]types.MessageAttributeValue{
		"Foo": value("String", "Bar"), "size": value("Number.int", "-1.50"), "raw": binary(0, 1, 254, 255),
	}
	trace := types.MessageSystemAttributeValue{
		DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793"),
	}
	sent := done(client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: url, MessageBody: aws.String("body"), MessageAttributes: given,
		MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{"AWSTraceHeader": trace},
	}))
	message := take(ctx, url, 1)[0]
	same(*message.MessageId, *sent.MessageId)
	same(message.MessageAttributes, given)
	same(*message.MD5OfMessageAttributes, *sent.MD5OfMessageAttributes)
	same(message.Attributes["ApproximateReceiveCount"], "1")
	same(message.Attributes["AWSTraceHeader"], *trace.StringValue)
	same(len(message.Attributes["SentTimestamp"]), 13)
	filtered := done(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: url, WaitTimeSeconds: 10, MessageAttributeNames: []string{"Fo.*", "Foo"},
	})).Messages[0]
	same(filtered.MessageAttributes, map[string]types.MessageAttributeValue{"Foo": value("String", "Bar")})
	same(*filtered.MD5OfMessageAttributes, "ae7155c6026991b6d54b11589678bf9c")
	plain := done(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 10})).Messages[0]
	same([]bool{plain.Attributes == nil, plain.MessageAttributes == nil, plain.MD5OfMessageAttributes == nil}, []bool{true, true, true})
	remove(ctx, url, plain)
}

func anyText(ctx context.Context) {
	url := queue(ctx, nil)
	given := map[string]types.MessageAttributeValue{"text": value("String", text)}
	done(client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String(text), MessageAttributes: given}))
	message := take(ctx, url, 1)[0]
	same(*message.Body, text)
	same(message.MessageAttributes, given)
	_, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("bell \u0007")})
	refused[*types.InvalidMessageContents](err, "InvalidMessageContents", 400)
	large := strings.Repeat("ü", 1<<19)
	send(ctx, url, large)
	same(*take(ctx, url, 1)[0].Body == large, true)
	_, err = client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String(large + ".")})
	refusedBy(err, "InvalidParameterValue", 400)
}

func batches(ctx context.Context) {
	url := queue(ctx, nil)
	entry := func(id, body string, delay int32) types.SendMessageBatchRequestEntry {
		return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body, DelaySeconds: delay}
	}
	sent := done(client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: []types.SendMessageBatchRequestEntry{
		entry("n0", "zero", 0), entry("n1", "bell \u0007", 0), entry("n2", "two", 0), entry("n3", "late", 901),
	}}))
	same([]string{*sent.Successful[0].Id, *sent.Successful[1].Id}, []string{"n0", "n2"})
	same(failures(sent.Failed), []string{"n1 InvalidMessageContents true", "n3 InvalidParameterValue true"})
	held := take(ctx, url, 2)
	change := func(id string, message types.Message, seconds int32) types.ChangeMessageVisibilityBatchRequestEntry {
		return types.ChangeMessageVisibilityBatchRequestEntry{Id: &id, ReceiptHandle: message.ReceiptHandle, VisibilityTimeout: seconds}
	}
	changed := done(client.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{
		QueueUrl: url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{change("good", held[0], 0), change("long", held[1], 43201)},
	}))
	same(*changed.Successful[0].Id, "good")
	same(failures(changed.Failed), []string{"long InvalidParameterValue true"})
	again := take(ctx, url, 1)[0]
	discard := func(id string, receipt *string) types.DeleteMessageBatchRequestEntry {
		return types.DeleteMessageBatchRequestEntry{Id: &id, ReceiptHandle: receipt}
	}
	deleted := done(client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: url, Entries: []types.DeleteMessageBatchRequestEntry{
		discard("a", again.ReceiptHandle), discard("b", held[1].ReceiptHandle), discard("c", aws.String("fake")),
	}}))
	same(len(deleted.Successful), 2)
	same(failures(deleted.Failed), []string{"c ReceiptHandleIsInvalid true"})
}

func failures(failed []types.BatchResultErrorEntry) []string {
	var found []string
	for _, entry := range failed {
		found = append(found, fmt.Sprint(*entry.Id, " ", *entry.Code, " ", entry.SenderFault))
	}
	return found
}

func wakeUp(ctx context.Context) {
	url := queue(ctx, nil)
	sent := make(chan time.Time, 1)
	go func() {
		time.Sleep(300 * time.Millisecond)
		sent <- time.Now()
		send(ctx, url, "wake up")
	}()
	same(bodies(receive(ctx, url, 20)), []string{"wake up"})
	if time.Since(<-sent) > 10*time.Second {
		panic("it slept on")
	}
	same(len(receive(ctx, url, 0)), 0)
}

func cancelled(ctx context.Context) {
	url := queue(ctx, map[string]string{"VisibilityTimeout": "600"})
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err := client.ReceiveMessage(short, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20})
	if !errors.Is(err, context.DeadlineExceeded) {
		panic(fmt.Sprint("found ", err))
	}
	send(ctx, url, "for the next")
	same(bodies(take(ctx, url, 1)), []string{"for the next"})
}

func visibility(ctx context.Context) {
	url := queue(ctx, map[string]string{"VisibilityTimeout": "1"})
	send(ctx, url, "again")
	first := take(ctx, url, 1)[0]
	second := take(ctx, url, 1)[0]
	release(ctx, url, second, 600)
	same([]string{first.Attributes["ApproximateReceiveCount"], second.Attributes["ApproximateReceiveCount"]}, []string{"1", "2"})
	same(*second.MessageId, *first.MessageId)
	same(len(receive(ctx, url, 2)), 0)
	same(attribute(ctx, url, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible), "1")
	release(ctx, url, second, 0)
	third := take(ctx, url, 1)[0]
	same(third.Attributes["ApproximateReceiveCount"], "3")
	remove(ctx, url, third)
	same(attribute(ctx, url, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible), "0")
}

func fifo(ctx context.Context) {
	url := queue(ctx, map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"})
	last := ""
	for _, body := range []string{"a1", "b1", "a2", "b2", "a3", "b3"} {
		sent := done(client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: &body, MessageGroupId: aws.String(body[:1])}))
		same(*sent.SequenceNumber > last, true)
		last = *sent.SequenceNumber
	}
	twice := &sqs.SendMessageInput{
		QueueUrl: url, MessageBody: aws.String("c1"), MessageGroupId: aws.String("c"), MessageDeduplicationId: aws.String("once"),
	}
	one, two := done(client.SendMessage(ctx, twice)), done(client.SendMessage(ctx, twice))
	same([]string{*two.MessageId, *two.SequenceNumber}, []string{*one.MessageId, *one.SequenceNumber})
	first := done(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 10})).Messages
	same(bodies(first), []string{"a1"})
	var others []string
	for _, body := range bodies(take(ctx, url, 4)) {
		if body != "c1" {
			others = append(others, body)
		}
	}
	same(others, []string{"b1", "b2", "b3"})
	remove(ctx, url, first[0])
	same(bodies(take(ctx, url, 2)), []string{"a2", "a3"})
	_, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("no group")})
	refusedBy(err, "MissingParameter", 400)
}

func deadLetters(ctx context.Context) {
	dead := queue(ctx, nil)
	deadArn := attribute(ctx, dead, types.QueueAttributeNameQueueArn)
	policy := fmt.Sprintf(`{"deadLetterTargetArn": "%s", "maxReceiveCount": 2}`, deadArn)
	url := queue(ctx, map[string]string{"RedrivePolicy": policy})
	sources := done(client.ListDeadLetterSourceQueues(ctx, &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: dead})).QueueUrls
	same(sources, []string{*url})
	kept := map[string]types.MessageAttributeValue{"kept": value("String", "yes")}
	done(client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("poison"), MessageAttributes: kept}))
	for delivery := 0; delivery < 2; delivery++ {
		release(ctx, url, take(ctx, url, 1)[0], 0)
	}
	same(len(receive(ctx, url, 0)), 0)
	letter := take(ctx, dead, 1)[0]
	same(*letter.Body, "poison")
	same(letter.MessageAttributes["kept"], kept["kept"])
	same(letter.Attributes["DeadLetterQueueSourceArn"], attribute(ctx, url, types.QueueAttributeNameQueueArn))
	release(ctx, dead, letter, 0)
	done(client.StartMessageMoveTask(ctx, &sqs.StartMessageMoveTaskInput{SourceArn: &deadArn}))
	same(take(ctx, url, 1)[0].MessageAttributes["kept"], kept["kept"])
	for {
		task := done(client.ListMessageMoveTasks(ctx, &sqs.ListMessageMoveTasksInput{SourceArn: &deadArn})).Results[0]
		if *task.Status == "COMPLETED" {
			same(task.ApproximateNumberOfMessagesMoved, int64(1))
			return
		}
		must(ctx.Err())
		time.Sleep(20 * time.Millisecond)
	}
}

func fromKafka(ctx context.Context) {
	url := done(client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("from-kafka")})).QueueUrl
	message := take(ctx, url, 1)[0]
	same(*message.Body, "by Kafka 😀")
	expected := map[string]types.MessageAttributeValue{"text": value("String", "plain"), "raw": binary(255, 254)}
	same(message.MessageAttributes, expected)
	remove(ctx, url, message)
}

func toKafka(ctx context.Context) {
	url := done(client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("to-kafka")})).QueueUrl
	given := map[string]types.MessageAttributeValue{
		"text": value("String", "plain"), "size": value("Number", "17"), "raw": binary(255, 254),
	}
	done(client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("by SQS 😀"), MessageAttributes: given}))
}
