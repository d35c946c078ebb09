// The AWS SDK for JavaScript against a broker's SQS: `node interop.js`.
// It finds the broker and its key in the environment, as any program with the SDK does; SIGNED_ENDPOINT_URL is another
// broker that wants the signatures of `skidway-key`. The SDK checks the MD5 of every body that it sends and receives.
// Every check prints "ok <what>"; the first that fails ends the program with its reason.

const assert = require('node:assert/strict')
const { createHash, randomUUID } = require('node:crypto')
const sdk = require('@aws-sdk/client-sqs')

const sqs = new sdk.SQS({})
const TEXT = 'emoji 😀, CR \r, CR LF \r\n, tab \t, & < > "quotes" \'single\', umlaut ü, last \u{fffd}'

const md5 = (text) => createHash('md5').update(text).digest('hex')
const newName = (suffix = '') => `js-${randomUUID()}${suffix}`

async function queue(Attributes = {}, suffix = '') {
  const { QueueUrl } = await sqs.createQueue({ QueueName: newName(suffix), Attributes })
  return QueueUrl
}

const fifo = (Attributes = {}) => queue({ FifoQueue: 'true', ...Attributes }, '.fifo')

async function arn(QueueUrl) {
  return (await sqs.getQueueAttributes({ QueueUrl, AttributeNames: ['QueueArn'] })).Attributes.QueueArn
}

async function receive(QueueUrl, more = {}) {
  const { Messages = [] } = await sqs.receiveMessage({ QueueUrl, WaitTimeSeconds: 10, MaxNumberOfMessages: 10, ...more })
  return Messages
}

// As many as are expected, however many polls that takes.
async function take(QueueUrl, count, more = {}) {
  const found = []
  for (let polls = 0; found.length < count && polls < 20; polls++) found.push(...(await receive(QueueUrl, more)))
  assert.equal(found.length, count)
  return found
}

const remove = (QueueUrl, { ReceiptHandle }) => sqs.deleteMessage({ QueueUrl, ReceiptHandle })

async function eventually(check) {
  for (let tries = 0; ; tries++) {
    try {
      return await check()
    } catch (problem) {
      if (tries === 200) throw problem
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
}

// The exception has the class of the SDK and both names of the error; one without a class has the older name for both.
async function refused(promise, kind, code, status = 400) {
  const error = await promise.then(() => assert.fail(`nothing was refused; expected ${kind}`), (problem) => problem)
  assert.ok(error instanceof (sdk[kind] ?? sdk.SQSServiceException), `${error.name} is no ${kind}: ${error}`)
  const name = sdk[kind] ? kind : code
  assert.deepEqual([error.name, error.Code, error.$fault, error.$metadata.httpStatusCode], [name, code, 'client', status])
  assert.ok(error.$metadata.requestId)
  return error
}

const checks = {
  async 'create, list, find, configure and tag queues'() {
    const prefix = newName('-')
    const QueueUrls = []
    for (const number of [0, 1, 2]) {
      const made = await sqs.createQueue({ QueueName: prefix + number, Attributes: { VisibilityTimeout: '7' }, tags: { team: 'a & b' } })
      QueueUrls.push(made.QueueUrl)
    }
    const listed = []
    for await (const page of sdk.paginateListQueues({ client: sqs, pageSize: 2 }, { QueueNamePrefix: prefix })) listed.push(...page.QueueUrls)
    assert.deepEqual(listed, QueueUrls)
    const [QueueUrl] = QueueUrls
    assert.equal((await sqs.getQueueUrl({ QueueName: `${prefix}0` })).QueueUrl, QueueUrl)
    assert.equal((await sqs.createQueue({ QueueName: `${prefix}0`, Attributes: { VisibilityTimeout: '7' } })).QueueUrl, QueueUrl)
    await sqs.setQueueAttributes({ QueueUrl, Attributes: { DelaySeconds: '3', MaximumMessageSize: '2048' } })
    const { Attributes } = await sqs.getQueueAttributes({ QueueUrl, AttributeNames: ['All'] })
    assert.deepEqual([Attributes.VisibilityTimeout, Attributes.DelaySeconds, Attributes.MaximumMessageSize], ['7', '3', '2048'])
    assert.equal(Attributes.QueueArn, `arn:aws:sqs:us-east-1:000000000000:${prefix}0`)
    await sqs.tagQueue({ QueueUrl, Tags: { empty: '', stage: 'test' } })
    await sqs.untagQueue({ QueueUrl, TagKeys: ['stage', 'unknown'] })
    assert.deepEqual((await sqs.listQueueTags({ QueueUrl })).Tags, { team: 'a & b', empty: '' })
    await sqs.addPermission({ QueueUrl, Label: 'may-send', AWSAccountIds: ['111122223333'], Actions: ['SendMessage'] })
    const policy = (await sqs.getQueueAttributes({ QueueUrl, AttributeNames: ['Policy'] })).Attributes.Policy
    assert.equal(JSON.parse(policy).Statement[0].Sid, 'may-send')
    await sqs.removePermission({ QueueUrl, Label: 'may-send' })
    await sqs.deleteQueue({ QueueUrl })
    await refused(sqs.getQueueUrl({ QueueName: `${prefix}0` }), 'QueueDoesNotExist', 'AWS.SimpleQueueService.NonExistentQueue')
  },

  async 'attributes of three types'() {
    const QueueUrl = await queue()
    const MessageAttributes = {
      Foo: { DataType: 'String', StringValue: 'Bar' },
      size: { DataType: 'Number.int', StringValue: '-1.50' },
      raw: { DataType: 'Binary', BinaryValue: new Uint8Array([0, 1, 254, 255]) },
    }
    const MessageSystemAttributes = { AWSTraceHeader: { DataType: 'String', StringValue: 'Root=1-5759e988-bd862e3fe1be46a994272793' } }
    const sent = await sqs.sendMessage({ QueueUrl, MessageBody: 'body', MessageAttributes, MessageSystemAttributes })
    assert.match(sent.MessageId, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)
    const [message] = await receive(QueueUrl, { MessageAttributeNames: ['All'], MessageSystemAttributeNames: ['All'], VisibilityTimeout: 0 })
    assert.equal(message.MessageId, sent.MessageId)
    assert.equal(message.MD5OfMessageAttributes, sent.MD5OfMessageAttributes)
    assert.deepEqual(message.MessageAttributes.Foo, MessageAttributes.Foo)
    assert.deepEqual(message.MessageAttributes.size, MessageAttributes.size)
    assert.deepEqual([...message.MessageAttributes.raw.BinaryValue], [0, 1, 254, 255])
    assert.equal(message.Attributes.ApproximateReceiveCount, '1')
    assert.equal(message.Attributes.AWSTraceHeader, MessageSystemAttributes.AWSTraceHeader.StringValue)
    assert.match(message.Attributes.SentTimestamp, /^\d{13}$/)
    const [filtered] = await receive(QueueUrl, { MessageAttributeNames: ['Fo.*', 'Foo'], VisibilityTimeout: 0 })
    assert.deepEqual(Object.keys(filtered.MessageAttributes), ['Foo'])
    assert.equal(filtered.MD5OfMessageAttributes, 'ae7155c6026991b6d54b11589678bf9c')
    const [plain] = await receive(QueueUrl)
    assert.deepEqual([plain.Attributes, plain.MessageAttributes, plain.MD5OfMessageAttributes], [undefined, undefined, undefined])
    await remove(QueueUrl, plain)
  },

  async 'any text'() {
    const QueueUrl = await queue()
    const MessageAttributes = { text: { DataType: 'String', StringValue: TEXT } }
    const sent = await sqs.sendMessage({ QueueUrl, MessageBody: TEXT, MessageAttributes })
    assert.equal(sent.MD5OfMessageBody, md5(TEXT))
    const [message] = await receive(QueueUrl, { MessageAttributeNames: ['All'] })
    assert.equal(message.Body, TEXT)
    assert.equal(message.MessageAttributes.text.StringValue, TEXT)
    await refused(sqs.sendMessage({ QueueUrl, MessageBody: 'bell \u0007' }), 'InvalidMessageContents', 'InvalidMessageContents')
    const large = 'ü'.repeat(1 << 19)
    await sqs.sendMessage({ QueueUrl, MessageBody: large })
    assert.equal((await take(QueueUrl, 1))[0].Body, large)
    await refused(sqs.sendMessage({ QueueUrl, MessageBody: `${large}.` }), 'InvalidParameterValueException', 'InvalidParameterValue')
  },

  async 'batches that fail in part'() {
    const QueueUrl = await queue()
    const bodies = ['zero', 'bell \u0007', 'two', 'late']
    const sent = await sqs.sendMessageBatch({
      QueueUrl,
      Entries: bodies.map((MessageBody, index) => ({ Id: `n${index}`, MessageBody, DelaySeconds: MessageBody === 'late' ? 901 : undefined })),
    })
    assert.deepEqual(sent.Successful.map(({ Id }) => Id), ['n0', 'n2'])
    assert.deepEqual(sent.Failed.map(({ Id, Code, SenderFault }) => [Id, Code, SenderFault]), [['n1', 'InvalidMessageContents', true], ['n3', 'InvalidParameterValue', true]])
    const receipts = (await take(QueueUrl, 2)).map(({ ReceiptHandle }) => ReceiptHandle)
    const changed = await sqs.changeMessageVisibilityBatch({
      QueueUrl,
      Entries: [{ Id: 'good', ReceiptHandle: receipts[0], VisibilityTimeout: 0 }, { Id: 'long', ReceiptHandle: receipts[1], VisibilityTimeout: 43201 }],
    })
    assert.deepEqual(changed.Successful.map(({ Id }) => Id), ['good'])
    assert.deepEqual(changed.Failed.map(({ Id, Code }) => [Id, Code]), [['long', 'InvalidParameterValue']])
    const [again] = await take(QueueUrl, 1)
    const deleted = await sqs.deleteMessageBatch({
      QueueUrl,
      Entries: [{ Id: 'a', ReceiptHandle: again.ReceiptHandle }, { Id: 'b', ReceiptHandle: receipts[1] }, { Id: 'c', ReceiptHandle: 'fake' }],
    })
    assert.deepEqual(deleted.Successful.map(({ Id }) => Id), ['a', 'b'])
    assert.deepEqual(deleted.Failed.map(({ Id, Code, SenderFault }) => [Id, Code, SenderFault]), [['c', 'ReceiptHandleIsInvalid', true]])
    const all = await sqs.sendMessageBatch({ QueueUrl, Entries: [{ Id: 'all', MessageBody: 'good' }] })
    assert.equal(all.Failed, undefined)
  },

  async 'a long poll wakes for a message'() {
    const QueueUrl = await queue()
    const poll = receive(QueueUrl, { WaitTimeSeconds: 20 })
    await new Promise((resolve) => setTimeout(resolve, 300))
    const sentMs = Date.now()
    await sqs.sendMessage({ QueueUrl, MessageBody: 'wake up' })
    assert.equal((await poll)[0].Body, 'wake up')
    assert.ok(Date.now() - sentMs < 10_000, 'it slept on')
    assert.equal((await sqs.receiveMessage({ QueueUrl })).Messages, undefined)
  },

  async 'a poll that was aborted takes nothing'() {
    const QueueUrl = await queue({ VisibilityTimeout: '600' })
    const abort = new AbortController()
    const poll = sqs.receiveMessage({ QueueUrl, WaitTimeSeconds: 20 }, { abortSignal: abort.signal })
    setTimeout(() => abort.abort(), 300)
    await assert.rejects(poll, { name: 'AbortError' })
    await sqs.sendMessage({ QueueUrl, MessageBody: 'for the next' })
    assert.equal((await take(QueueUrl, 1))[0].Body, 'for the next')
  },

  async 'visibility, and deliveries are counted'() {
    const QueueUrl = await queue({ VisibilityTimeout: '1' })
    await sqs.sendMessage({ QueueUrl, MessageBody: 'again' })
    const counted = { MessageSystemAttributeNames: ['ApproximateReceiveCount', 'ApproximateFirstReceiveTimestamp'] }
    const [first] = await take(QueueUrl, 1, counted)
    const [second] = await take(QueueUrl, 1, { ...counted, VisibilityTimeout: 600 })
    assert.deepEqual([first, second].map(({ Attributes }) => Attributes.ApproximateReceiveCount), ['1', '2'])
    assert.equal(second.Attributes.ApproximateFirstReceiveTimestamp, first.Attributes.ApproximateFirstReceiveTimestamp)
    assert.equal(second.MessageId, first.MessageId)
    assert.notEqual(second.ReceiptHandle, first.ReceiptHandle)
    assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), [])
    await sqs.changeMessageVisibility({ QueueUrl, ReceiptHandle: second.ReceiptHandle, VisibilityTimeout: 0 })
    const [third] = await take(QueueUrl, 1, { ...counted, VisibilityTimeout: 600 })
    assert.equal(third.Attributes.ApproximateReceiveCount, '3')
    await remove(QueueUrl, third)
    const { Attributes } = await sqs.getQueueAttributes({ QueueUrl, AttributeNames: ['ApproximateNumberOfMessages', 'ApproximateNumberOfMessagesNotVisible'] })
    assert.deepEqual(Object.values(Attributes), ['0', '0'])
  },

  async 'FIFO: groups in order, duplicates once'() {
    const QueueUrl = await fifo({ ContentBasedDeduplication: 'true' })
    const numbers = []
    for (const number of [1, 2, 3]) {
      for (const MessageGroupId of ['a', 'b']) {
        const sent = await sqs.sendMessage({ QueueUrl, MessageBody: `${MessageGroupId}${number}`, MessageGroupId })
        numbers.push(sent.SequenceNumber)
      }
    }
    assert.deepEqual([...numbers].sort(), numbers)
    const [one, two] = await Promise.all([1, 2].map(() => sqs.sendMessage({ QueueUrl, MessageBody: 'c1', MessageGroupId: 'c', MessageDeduplicationId: 'once' })))
    assert.deepEqual([one.MessageId, one.SequenceNumber], [two.MessageId, two.SequenceNumber])
    const [first] = await receive(QueueUrl, { MaxNumberOfMessages: 1, MessageSystemAttributeNames: ['All'] })
    assert.deepEqual([first.Body, first.Attributes.MessageGroupId], ['a1', 'a'])
    const others = await take(QueueUrl, 4)
    assert.deepEqual(others.map(({ Body }) => Body).filter((body) => body.startsWith('b')), ['b1', 'b2', 'b3'])
    assert.ok(!others.some(({ Body }) => Body.startsWith('a')), 'a group is in flight twice')
    await remove(QueueUrl, first)
    assert.deepEqual((await take(QueueUrl, 2)).map(({ Body }) => Body), ['a2', 'a3'])
    await refused(sqs.sendMessage({ QueueUrl, MessageBody: 'no group' }), 'MissingRequiredParameterException', 'MissingParameter')
  },

  async 'dead letters, and a task that moves them back'() {
    const dead = await queue()
    const deadArn = await arn(dead)
    const QueueUrl = await queue({ RedrivePolicy: JSON.stringify({ deadLetterTargetArn: deadArn, maxReceiveCount: 2 }) })
    assert.deepEqual((await sqs.listDeadLetterSourceQueues({ QueueUrl: dead })).queueUrls, [QueueUrl])
    await sqs.sendMessage({ QueueUrl, MessageBody: 'poison', MessageAttributes: { kept: { DataType: 'String', StringValue: 'yes' } } })
    for (let delivery = 0; delivery < 2; delivery++) await take(QueueUrl, 1, { VisibilityTimeout: 0 })
    assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), [])
    const [letter] = await take(dead, 1, { MessageAttributeNames: ['All'], MessageSystemAttributeNames: ['DeadLetterQueueSourceArn'], VisibilityTimeout: 0 })
    assert.deepEqual([letter.Body, letter.MessageAttributes.kept.StringValue], ['poison', 'yes'])
    assert.equal(letter.Attributes.DeadLetterQueueSourceArn, await arn(QueueUrl))
    const { TaskHandle } = await sqs.startMessageMoveTask({ SourceArn: deadArn })
    assert.ok(TaskHandle)
    const [moved] = await take(QueueUrl, 1, { MessageAttributeNames: ['All'] })
    assert.deepEqual([moved.Body, moved.MessageAttributes.kept.StringValue], ['poison', 'yes'])
    await eventually(async () => {
      const [task] = (await sqs.listMessageMoveTasks({ SourceArn: deadArn })).Results
      assert.deepEqual([task.Status, task.ApproximateNumberOfMessagesMoved, task.SourceArn, task.TaskHandle], ['COMPLETED', 1, deadArn, undefined])
    })
  },

  async 'exceptions of the SDK'() {
    const QueueUrl = await queue()
    const old = (name) => `AWS.SimpleQueueService.${name}`
    const gone = `${QueueUrl}-gone`
    const missing = await refused(sqs.sendMessage({ QueueUrl: gone, MessageBody: 'x' }), 'QueueDoesNotExist', old('NonExistentQueue'))
    assert.equal(missing.message, 'The specified queue does not exist.')
    await refused(sqs.receiveMessage({ QueueUrl: gone }), 'QueueDoesNotExist', old('NonExistentQueue'))
    const QueueName = QueueUrl.split('/').at(-1)
    await refused(sqs.createQueue({ QueueName, Attributes: { DelaySeconds: '5' } }), 'QueueNameExists', 'QueueAlreadyExists')
    await refused(sqs.deleteMessage({ QueueUrl, ReceiptHandle: 'fake' }), 'ReceiptHandleIsInvalid', 'ReceiptHandleIsInvalid', 404)
    await refused(sqs.changeMessageVisibility({ QueueUrl, ReceiptHandle: 'fake', VisibilityTimeout: 1 }), 'ReceiptHandleIsInvalid', 'ReceiptHandleIsInvalid', 404)
    await refused(sqs.getQueueAttributes({ QueueUrl, AttributeNames: ['Nope'] }), 'InvalidAttributeName', 'InvalidAttributeName')
    await refused(sqs.setQueueAttributes({ QueueUrl, Attributes: { VisibilityTimeout: '43201' } }), 'InvalidAttributeValue', 'InvalidAttributeValue')
    const entries = (ids) => ({ QueueUrl, Entries: ids.map((Id) => ({ Id, MessageBody: 'x' })) })
    await refused(sqs.sendMessageBatch(entries([])), 'EmptyBatchRequest', old('EmptyBatchRequest'))
    await refused(sqs.sendMessageBatch(entries(['a', 'a'])), 'BatchEntryIdsNotDistinct', old('BatchEntryIdsNotDistinct'))
    await refused(sqs.sendMessageBatch(entries(['no blanks'])), 'InvalidBatchEntryId', old('InvalidBatchEntryId'))
    await refused(sqs.sendMessageBatch(entries([...'abcdefghijk'])), 'TooManyEntriesInBatchRequest', old('TooManyEntriesInBatchRequest'))
    await sqs.purgeQueue({ QueueUrl })
    await refused(sqs.purgeQueue({ QueueUrl }), 'PurgeQueueInProgress', old('PurgeQueueInProgress'), 403)
    await refused(sqs.startMessageMoveTask({ SourceArn: `${await arn(QueueUrl)}-gone` }), 'ResourceNotFoundException', 'ResourceNotFoundException', 404)
    await refused(sqs.receiveMessage({ QueueUrl, MaxNumberOfMessages: 11 }), 'InvalidParameterValueException', 'InvalidParameterValue')
  },

  async 'signatures of configured keys'() {
    const client = (accessKeyId, secretAccessKey, region = 'us-east-1') =>
      new sdk.SQS({ endpoint: process.env.SIGNED_ENDPOINT_URL, region, credentials: { accessKeyId, secretAccessKey } })
    const right = client('skidway-key', 'skidway-secret')
    const { QueueUrl } = await right.createQueue({ QueueName: newName() })
    await right.sendMessage({ QueueUrl, MessageBody: TEXT })
    assert.equal((await right.receiveMessage({ QueueUrl, WaitTimeSeconds: 10 })).Messages[0].Body, TEXT)
    await refused(client('skidway-key', 'wrong').listQueues({}), 'InvalidSignatureException', 'SignatureDoesNotMatch', 403)
    await refused(client('unknown', 'skidway-secret').listQueues({}), 'UnrecognizedClientException', 'InvalidClientTokenId', 403)
    assert.deepEqual((await client('skidway-key', 'skidway-secret', 'eu-west-1').listQueues({})).QueueUrls ?? [], [])
  },

  async 'a client whose clock is wrong goes by the broker\'s'() {
    const credentials = { accessKeyId: 'skidway-key', secretAccessKey: 'skidway-secret' }
    const { now } = Date
    for (const wrongMs of [-3_600_000, 3_600_000]) {
      const client = new sdk.SQS({ endpoint: process.env.SIGNED_ENDPOINT_URL, region: 'us-east-1', credentials })
      Date.now = () => now() + wrongMs
      try {
        assert.equal((await client.listQueues({})).$metadata.attempts, 2)
      } finally {
        Date.now = now
      }
    }
  },

  async 'records of a Kafka producer are received'() {
    const { QueueUrl } = await sqs.getQueueUrl({ QueueName: 'from-kafka' })
    const [message] = await take(QueueUrl, 1, { MessageAttributeNames: ['All'] })
    assert.equal(message.Body, 'by Kafka 😀')
    assert.deepEqual(message.MessageAttributes.text, { DataType: 'String', StringValue: 'plain' })
    assert.deepEqual([...message.MessageAttributes.raw.BinaryValue], [255, 254])
    await remove(QueueUrl, message)
  },

  async 'a message is sent to a Kafka consumer'() {
    const { QueueUrl } = await sqs.createQueue({ QueueName: 'to-kafka' })
    const MessageAttributes = {
      text: { DataType: 'String', StringValue: 'plain' },
      size: { DataType: 'Number', StringValue: '17' },
      raw: { DataType: 'Binary', BinaryValue: new Uint8Array([255, 254]) },
    }
    await sqs.sendMessage({ QueueUrl, MessageBody: 'by SQS 😀', MessageAttributes })
  },
}

async function main() {
  for (const [what, body] of Object.entries(checks)) {
    try {
      await body()
      console.log(`ok ${what}`)
    } catch (problem) {
      console.log(`FAIL ${what}`)
      console.log(problem)
      process.exit(1)
    }
  }
}

main()
