package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

const old = "AWS.SimpleQueueService."

// The error has the type of the SDK, the older name and the status.
func refused[Kind smithy.APIError](err error, code string, status int) {
	var kind Kind
	if !errors.As(err, &kind) {
		panic(fmt.Sprintf("found %v, expected %T", err, kind))
	}
	refusedBy(err, code, status)
}

func refusedBy(err error, code string, status int) {
	var refusal smithy.APIError
	if !errors.As(err, &refusal) {
		panic(fmt.Sprint("found ", err, ", expected ", code))
	}
	same(refusal.ErrorCode(), code)
	same(refusal.ErrorFault() != smithy.FaultServer, true)
	var answer *awshttp.ResponseError
	if !errors.As(err, &answer) || answer.ServiceRequestID() == "" {
		panic(fmt.Sprint("no answer with a request id: ", err))
	}
	same(answer.HTTPStatusCode(), status)
}

func refusals(ctx context.Context) {
	url := queue(ctx, nil)
	gone := aws.String(*url + "-gone")
	_, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: gone, MessageBody: aws.String("x")})
	refused[*types.QueueDoesNotExist](err, old+"NonExistentQueue", 400)
	var missing *types.QueueDoesNotExist
	errors.As(err, &missing)
	same(missing.ErrorMessage(), "The specified queue does not exist.")
	_, err = client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: gone})
	refused[*types.QueueDoesNotExist](err, old+"NonExistentQueue", 400)
	name := path.Base(*url)
	_, err = client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{"DelaySeconds": "5"}})
	refused[*types.QueueNameExists](err, "QueueAlreadyExists", 400)
	fake := aws.String("fake")
	_, err = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: fake})
	refused[*types.ReceiptHandleIsInvalid](err, "ReceiptHandleIsInvalid", 404)
	_, err = client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: url, ReceiptHandle: fake})
	refused[*types.ReceiptHandleIsInvalid](err, "ReceiptHandleIsInvalid", 404)
	_, err = client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: []types.QueueAttributeName{"Nope"}})
	refused[*types.InvalidAttributeName](err, "InvalidAttributeName", 400)
	_, err = client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: url, Attributes: map[string]string{"VisibilityTimeout": "43201"}})
	refused[*types.InvalidAttributeValue](err, "InvalidAttributeValue", 400)
	refused[*types.EmptyBatchRequest](sendAll(ctx, url), old+"EmptyBatchRequest", 400)
	refused[*types.BatchEntryIdsNotDistinct](sendAll(ctx, url, "a", "a"), old+"BatchEntryIdsNotDistinct", 400)
	refused[*types.InvalidBatchEntryId](sendAll(ctx, url, "no blanks"), old+"InvalidBatchEntryId", 400)
	eleven := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"}
	refused[*types.TooManyEntriesInBatchRequest](sendAll(ctx, url, eleven...), old+"TooManyEntriesInBatchRequest", 400)
	done(client.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: url}))
	_, err = client.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: url})
	refused[*types.PurgeQueueInProgress](err, old+"PurgeQueueInProgress", 403)
	source := attribute(ctx, url, types.QueueAttributeNameQueueArn) + "-gone"
	_, err = client.StartMessageMoveTask(ctx, &sqs.StartMessageMoveTaskInput{SourceArn: &source})
	refused[*types.ResourceNotFoundException](err, "ResourceNotFoundException", 404)
	_, err = client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 11})
	refusedBy(err, "InvalidParameterValue", 400)
}

func sendAll(ctx context.Context, url *string, ids ...string) error {
	entries := []types.SendMessageBatchRequestEntry{}
	for _, id := range ids {
		entries = append(entries, types.SendMessageBatchRequestEntry{Id: &id, MessageBody: aws.String("x")})
	}
	_, err := client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: entries})
	return err
}

func signatures(ctx context.Context) {
	signing := func(id, secret, region string) *sqs.Client {
		return sqs.New(sqs.Options{
			BaseEndpoint: aws.String(os.Getenv("SIGNED_ENDPOINT_URL")), Region: region,
			Credentials: credentials.NewStaticCredentialsProvider(id, secret, ""),
		})
	}
	right := signing("skidway-key", "skidway-secret", "us-east-1")
	name := newName()
	url := done(right.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name})).QueueUrl
	done(right.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String(text)}))
	found := done(right.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 10})).Messages
	same(bodies(found), []string{text})
	_, err := signing("skidway-key", "wrong", "us-east-1").ListQueues(ctx, &sqs.ListQueuesInput{})
	refusedBy(err, "SignatureDoesNotMatch", 403)
	_, err = signing("unknown", "skidway-secret", "us-east-1").ListQueues(ctx, &sqs.ListQueuesInput{})
	refusedBy(err, "InvalidClientTokenId", 403)
	elsewhere := done(signing("skidway-key", "skidway-secret", "eu-west-1").ListQueues(ctx, &sqs.ListQueuesInput{}))
	same(len(elsewhere.QueueUrls), 0)
}
