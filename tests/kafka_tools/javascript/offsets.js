// kafkajs sets and resets the offsets of a group, and reads from there; prints what it found as a line of JSON.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
const admin = kafka.admin()

const committed = async (resolveOffsets) => {
  const [found] = await admin.fetchOffsets({ groupId: topic, topics: [topic], resolveOffsets })
  return found.partitions[0].offset
}

// The first message that a consumer of the group gets.
const first = async () => {
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const offset = await new Promise((resolve) => {
    consumer.run({ autoCommit: false, eachMessage: async ({ message }) => resolve(message.offset) })
  })
  await consumer.disconnect()
  return offset
}

const main = async () => {
  const found = {}
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, configEntries: [{ name: 'segment.bytes', value: '1048576' }] }] })
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  await producer.send({ topic, messages: ['a', 'b', 'c'].map((value) => ({ value })) })
  await producer.disconnect()
  await admin.setOffsets({ groupId: topic, topic, partitions: [{ partition: 0, offset: '2' }] })
  found.set = [await committed(false), await first()]
  await admin.resetOffsets({ groupId: topic, topic, earliest: true })
  found.earliest = [await committed(false), await committed(true), await first()]
  await admin.resetOffsets({ groupId: topic, topic })
  found.latest = [await committed(false), await committed(true)]
  const transactional = kafka.producer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 })
  await transactional.connect()
  found.transaction = await transactional.transaction().then(() => 'begun', (error) => error.type)
  await admin.disconnect()
  console.log(JSON.stringify(found))
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1) })
