// kafkajs against a broker: `node interop.js host:port`.
// Its consumer is always in a group, so what is read back is read there, where the broker serves groups.
// Every check prints "ok <what>"; the first that fails ends the program with its reason.

const assert = require('node:assert/strict')
const { randomUUID } = require('node:crypto')
const { Kafka, CompressionTypes, Partitioners, logLevel } = require('kafkajs')

const kafka = new Kafka({ clientId: 'kafkajs', brokers: [process.argv[2]], logLevel: logLevel.NOTHING, retry: { retries: 3 } })
const admin = kafka.admin()
const START_MS = Date.now() - 3_600_000

const newName = () => `kafkajs-${randomUUID()}`

async function topic(numPartitions = 1, configEntries = []) {
  const name = newName()
  await admin.createTopics({ topics: [{ topic: name, numPartitions, configEntries }], waitForLeaders: true })
  return name
}

async function eventually(check) {
  for (let tries = 0; ; tries++) {
    try {
      return await check()
    } catch (problem) {
      if (tries === 200) throw problem
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
}

async function withProducer(options, body) {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, ...options })
  await producer.connect()
  try {
    return await body(producer)
  } finally {
    await producer.disconnect()
  }
}

const checks = {
  async cluster() {
    const { brokers, controller, clusterId } = await admin.describeCluster()
    assert.equal(brokers.length, 1)
    assert.equal(controller, brokers[0].nodeId)
    assert.ok(clusterId)
  },

  async 'produce with acks 1 and all'() {
    const name = await topic()
    await withProducer({}, async (producer) => {
      for (const [index, acks] of [1, -1, 1].entries()) {
        const [sent] = await producer.send({ topic: name, acks, messages: [{ value: `v${index}` }] })
        assert.equal(sent.errorCode, 0)
        assert.equal(sent.baseOffset, String(index))
      }
      await producer.send({ topic: name, acks: 0, messages: [{ value: 'silent' }] })
    })
    await eventually(async () => assert.equal((await admin.fetchTopicOffsets(name))[0].high, '4'))
  },

  async 'gzip, headers, null values'() {
    const name = await topic()
    await withProducer({}, async (producer) => {
      const messages = Array.from({ length: 300 }, (_, index) => ({
        key: `k${index}`,
        value: index % 10 ? 'compressible '.repeat(20) + index : null,
        headers: { one: 'a', many: ['b', 'c'] },
      }))
      const [sent] = await producer.send({ topic: name, compression: CompressionTypes.GZIP, messages })
      assert.equal(sent.baseOffset, '0')
    })
    assert.equal((await admin.fetchTopicOffsets(name))[0].high, '300')
  },

  async 'idempotent producer'() {
    const name = await topic()
    await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
      for (let index = 0; index < 20; index++) {
        const [sent] = await producer.send({ topic: name, messages: [{ value: `${index}` }] })
        assert.equal(sent.baseOffset, String(index))
      }
    })
  },

  async 'keys choose partitions as the Java client does'() {
    const name = await topic(6)
    const homes = { a: 4, 'key-17': 0, 'user-3': 5, 'user-12': 0 }
    await withProducer({}, async (producer) => {
      for (const [key, partition] of Object.entries(homes)) {
        const [sent] = await producer.send({ topic: name, messages: [{ key, value: 'v' }] })
        assert.equal(sent.partition, partition, key)
      }
    })
  },

  async 'message too large'() {
    const name = await topic(1, [{ name: 'max.message.bytes', value: '1000' }])
    await withProducer({ retry: { retries: 0 } }, async (producer) => {
      await assert.rejects(producer.send({ topic: name, messages: [{ value: 'v'.repeat(2000) }] }), { type: 'MESSAGE_TOO_LARGE' })
    })
  },

  async 'create, list, describe, delete'() {
    const name = await topic(3)
    assert.ok((await admin.listTopics()).includes(name))
    const { topics } = await admin.fetchTopicMetadata({ topics: [name] })
    assert.equal(topics[0].partitions.length, 3)
    assert.equal(await admin.createTopics({ topics: [{ topic: name }] }), false)
    await admin.deleteTopics({ topics: [name] })
    await eventually(async () => assert.ok(!(await admin.listTopics()).includes(name)))
  },

  async 'grow'() {
    const name = await topic(1)
    await admin.createPartitions({ topicPartitions: [{ topic: name, count: 4 }] })
    await eventually(async () => assert.equal((await admin.fetchTopicOffsets(name)).length, 4))
  },

  async 'configs'() {
    const name = await topic(1, [{ name: 'retention.ms', value: '7200000' }])
    const resource = { type: 2, name, configNames: ['retention.ms'] }
    const value = async () => (await admin.describeConfigs({ resources: [resource] })).resources[0].configEntries[0].configValue
    assert.equal(await value(), '7200000')
    await admin.alterConfigs({ validateOnly: false, resources: [{ type: 2, name, configEntries: [{ name: 'retention.ms', value: '8000000' }] }] })
    await eventually(async () => assert.equal(await value(), '8000000'))
  },

  async 'broker settings that change nothing'() {
    const [{ nodeId }] = (await admin.describeCluster()).brokers
    const name = String(nodeId)
    const entry = async () => {
      const { resources } = await admin.describeConfigs({ resources: [{ type: 4, name, configNames: ['log.cleaner.threads'] }] })
      return resources[0].configEntries[0].configValue
    }
    const before = await entry()
    const alter = (configEntries) => admin.alterConfigs({ validateOnly: false, resources: [{ type: 4, name, configEntries }] })
    await alter([{ name: 'log.cleaner.threads', value: '2' }])
    await eventually(async () => assert.equal(await entry(), '2'))
    await alter([])
    await eventually(async () => assert.equal(await entry(), before))
  },

  async 'the end after acks=1'() {
    const name = await topic()
    await withProducer({}, async (producer) => {
      for (let count = 1; count <= 20; count++) {
        await producer.send({ topic: name, acks: 1, messages: [{ value: 'x' }] })
        assert.equal((await admin.fetchTopicOffsets(name))[0].high, String(count))
      }
    })
  },

  async 'offsets by time, delete records'() {
    const name = await topic()
    await withProducer({}, async (producer) => {
      for (let index = 0; index < 10; index++) {
        await producer.send({ topic: name, messages: [{ value: `${index}`, timestamp: String(START_MS + 1000 * index) }] })
      }
    })
    assert.equal((await admin.fetchTopicOffsetsByTimestamp(name, START_MS + 4500))[0].offset, '5')
    await admin.deleteTopicRecords({ topic: name, partitions: [{ partition: 0, offset: '4' }] })
    assert.equal((await admin.fetchTopicOffsets(name))[0].low, '4')
  },
}

// A group of kafkajs consumers: `read` collects "partition:value", `shares` how many partitions each has.
async function withGroup(name, count, body, groupId = newName()) {
  const group = { groupId, read: [], shares: new Map(), members: [] }
  group.start = async () => {
    const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 100, metadataMaxAge: 500, rebalanceTimeout: 5000 })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      group.shares.set(consumer, Object.values(payload.memberAssignment).flat().length)
    })
    await consumer.connect()
    await consumer.subscribe({ topics: [name], fromBeginning: true })
    await consumer.run({ eachMessage: async ({ partition, message }) => { group.read.push(`${partition}:${message.value}`) } })
    group.members.push(consumer)
    return consumer
  }
  group.stop = async (consumer) => {
    await consumer.disconnect()
    group.shares.delete(consumer)
    group.members = group.members.filter((member) => member !== consumer)
  }
  group.settle = (expected) => patiently(() => assert.deepEqual([...group.shares.values()].sort(), expected))
  try {
    for (let index = 0; index < count; index++) await group.start()
    return await body(group)
  } finally {
    for (const consumer of group.members) await consumer.disconnect()
  }
}

async function patiently(check) {
  for (let tries = 0; ; tries++) {
    try {
      return await check()
    } catch (problem) {
      if (tries === 300) throw problem
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
}

async function writeNumbers(name, partitions, first, last) {
  const expected = []
  await withProducer({}, async (producer) => {
    for (let partition = 0; partition < partitions; partition++) {
      const messages = []
      for (let number = first; number < last; number++) {
        messages.push({ partition, value: `${number}` })
        expected.push(`${partition}:${number}`)
      }
      await producer.send({ topic: name, messages })
    }
  })
  return expected
}

const groupChecks = {
  async 'a group shares twelve partitions, each message once'() {
    const name = await topic(12)
    await withGroup(name, 3, async (group) => {
      await group.settle([4, 4, 4])
      const expected = await writeNumbers(name, 12, 0, 20)
      await patiently(() => assert.equal(new Set(group.read).size, expected.length))
      await group.stop(group.members[0])
      await group.settle([6, 6])
      expected.push(...(await writeNumbers(name, 12, 20, 40)))
      await patiently(() => assert.equal(new Set(group.read).size, expected.length))
      assert.deepEqual([...group.read].sort(), expected.sort())
    })
  },

  async 'a group goes on at its committed offsets'() {
    const name = await topic(2)
    const first = await writeNumbers(name, 2, 0, 10)
    const groupId = newName()
    await withGroup(name, 1, async (group) => {
      await patiently(() => assert.equal(group.read.length, first.length))
      await group.stop(group.members[0])
    }, groupId)
    const second = await writeNumbers(name, 2, 10, 15)
    await withGroup(name, 1, async (group) => {
      await patiently(() => assert.equal(group.read.length, second.length))
      assert.deepEqual([...group.read].sort(), second.sort())
    }, groupId)
  },

  async 'list, describe, offsets, reset, delete groups'() {
    const name = await topic(2)
    await writeNumbers(name, 2, 0, 10)
    const groupId = newName()
    await withGroup(name, 1, async (group) => {
      await group.settle([2])
      await patiently(() => assert.equal(group.read.length, 20))
      const { groups } = await admin.listGroups()
      assert.ok(groups.some((found) => found.groupId === groupId && found.protocolType === 'consumer'))
      const described = await admin.describeGroups([groupId])
      assert.equal(described.groups[0].state, 'Stable')
      assert.equal(described.groups[0].members.length, 1)
      const [deleted] = await admin.deleteGroups([groupId]).catch((problem) => problem.groups)
      assert.equal(deleted.error.type, 'NON_EMPTY_GROUP')
    }, groupId)
    const offsets = async () => {
      const [found] = await admin.fetchOffsets({ groupId, topics: [name] })
      return Object.fromEntries(found.partitions.map(({ partition, offset }) => [partition, offset]))
    }
    assert.deepEqual(await offsets(), { 0: '10', 1: '10' })
    await admin.setOffsets({ groupId, topic: name, partitions: [{ partition: 0, offset: '4' }] })
    assert.deepEqual(await offsets(), { 0: '4', 1: '10' })
    await admin.resetOffsets({ groupId, topic: name, earliest: true })
    await withGroup(name, 1, async (group) => {
      await patiently(() => assert.equal(group.read.length, 20))
    }, groupId)
    await admin.deleteGroups([groupId])
    assert.ok(!(await admin.listGroups()).groups.some((found) => found.groupId === groupId))
  },
}

// Values of a topic that a new group of read_committed consumers gets, as many as are expected, and how many came at most.
async function committed(name, expected) {
  await withGroup(name, 1, async (group) => {
    await patiently(() => assert.ok(group.read.length >= expected.length))
    assert.deepEqual([...group.read].sort(), [...expected].sort())
  })
}

const transactional = (transactionalId) => ({ transactionalId, idempotent: true, maxInFlightRequests: 1, transactionTimeout: 30000 })

const transactionChecks = {
  async 'transactions over several partitions'() {
    const name = await topic(2)
    await withProducer(transactional(name), async (producer) => {
      for (let number = 0; number < 6; number++) {
        const transaction = await producer.transaction()
        for (const partition of [0, 1]) await transaction.send({ topic: name, messages: [{ partition, value: `${number}` }] })
        await (number % 2 ? transaction.abort() : transaction.commit())
      }
    })
    await committed(name, ['0:0', '0:2', '0:4', '1:0', '1:2', '1:4'])
  },

  async 'a newcomer fences a zombie'() {
    const name = await topic()
    await withProducer(transactional(name), async (zombie) => {
      const old = await zombie.transaction()
      await old.send({ topic: name, messages: [{ value: 'zombie' }] })
      await withProducer(transactional(name), async (newcomer) => {
        const transaction = await newcomer.transaction()
        await transaction.send({ topic: name, messages: [{ value: 'newcomer' }] })
        await assert.rejects(old.commit(), ({ type }) => ['INVALID_PRODUCER_EPOCH', 'PRODUCER_FENCED'].includes(type))
        await transaction.commit()
      })
    })
    await committed(name, ['0:newcomer'])
  },

  async 'offsets of a transaction move when it commits'() {
    const [name, sink, groupId] = [await topic(), await topic(), newName()]
    await writeNumbers(name, 1, 0, 10)
    const at = async () => (await admin.fetchOffsets({ groupId, topics: [name] }))[0].partitions.find(({ partition }) => partition === 0)?.offset
    await withProducer(transactional(sink), async (producer) => {
      for (const [number, ends] of ['abort', 'commit'].entries()) {
        const transaction = await producer.transaction()
        await transaction.send({ topic: sink, messages: [{ value: ends }] })
        await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: name, partitions: [{ partition: 0, offset: `${5 + number}` }] }] })
        assert.equal(await at() ?? '-1', '-1')
        await transaction[ends]()
      }
    })
    await patiently(async () => assert.equal(await at(), '6'))
    await committed(sink, ['0:commit'])
  },
}

async function servesGroups() {
  try {
    await admin.listGroups()
    return true
  } catch (problem) {
    console.log(`no groups yet on this broker: ${problem.message}`)
    return false
  }
}

async function main() {
  await admin.connect()
  if (await servesGroups()) Object.assign(checks, groupChecks, transactionChecks)
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
  await admin.disconnect()
}

main()
