// A group member with KafkaJS. See groups.py for the file that it writes.
'use strict'

const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const given = {}
for (let i = 2; i + 1 < process.argv.length; i += 2) given[process.argv[i].slice(2)] = process.argv[i + 1]
const file = fs.openSync(given.out, 'a')
const say = (...words) => fs.writeSync(file, [Date.now(), ...words].join('\t') + '\n')

// A listener with TLS and logins: how to connect stands in a line of a file, as in secure.js.
const secured = {}
if (process.env.SEAWALL_CASE) {
  const words = fs.readFileSync(process.env.SEAWALL_CASE, 'utf8').trim().split('\t')
  const asked = Object.fromEntries(words.map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]))
  secured.ssl = { ca: [fs.readFileSync(asked.ca, 'utf8')] }
  secured.sasl = { mechanism: asked.mechanism.toLowerCase(), username: asked.user, password: asked.password }
}

const kafka = new Kafka({
  clientId: 'member',
  brokers: [given.bootstrap],
  logLevel: logLevel.NOTHING,
  ...secured,
  retry: { initialRetryTime: 200, maxRetryTime: 1000, retries: 60 },
})
const consumer = kafka.consumer({
  groupId: given.group,
  sessionTimeout: Number(given.session),
  heartbeatInterval: 1000,
  maxWaitTimeInMs: 200,
})

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  say('assigned', (payload.memberAssignment[given.topic] || []).join(','))
})
consumer.on(consumer.events.REBALANCING, () => say('revoked', ''))
consumer.on(consumer.events.CRASH, ({ payload }) => say(payload.restart ? 'note' : 'error', String(payload.error)))

async function eachBatch({ batch, resolveOffset, isRunning, isStale }) {
  if (!isRunning() || isStale() || batch.messages.length === 0) return
  for (const message of batch.messages) {
    say('record', batch.partition, message.offset, message.value.toString())
  }
  const last = batch.lastOffset()
  const next = String(BigInt(last) + 1n)
  await consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset: next }])
  say('committed', batch.partition, next)
  resolveOffset(last)
}

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topics: [given.topic], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
  say('start')
}

process.on('SIGTERM', async () => {
  await consumer.disconnect()
  say('end')
  process.exit(0)
})
main().catch((error) => {
  say('error', String(error))
  process.exit(1)
})
