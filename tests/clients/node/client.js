// KafkaJS. It can not read without a group, so it only writes; of the codecs it ships gzip.
'use strict'

const fs = require('fs')
const { CompressionTypes, Kafka, Partitioners, logLevel } = require('kafkajs')

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }
const ACKS = { 0: 0, 1: 1, all: -1, idem: -1 }
const LINES_PER_SEND = 50

async function write(kafka, topic, codec, acks, file) {
  const idempotent = acks === 'idem'
  const producer = kafka.producer({ idempotent, createPartitioner: Partitioners.DefaultPartitioner })
  const lines = fs.readFileSync(file, 'latin1').replace(/\n$/, '').split('\n')
  await producer.connect()
  try {
    for (let at = 0; at < lines.length; at += LINES_PER_SEND) {
      const messages = lines
        .slice(at, at + LINES_PER_SEND)
        .map((line) => ({ partition: 0, value: Buffer.from(line, 'latin1') }))
      await producer.send({ topic, acks: ACKS[acks], compression: CODECS[codec], messages })
    }
  } finally {
    await producer.disconnect()
  }
}

// Every topic of a file appears in the metadata under exactly its name.
async function names(kafka, file) {
  const expected = fs.readFileSync(file, 'utf8').trim().split('\n').map((line) => line.split(' ')[0])
  const admin = kafka.admin()
  await admin.connect()
  try {
    const { topics } = await admin.fetchTopicMetadata({ topics: expected })
    const got = topics.map((topic) => topic.name).sort().join(' ')
    if (got !== expected.slice().sort().join(' ')) throw new Error('names differ')
  } finally {
    await admin.disconnect()
  }
}

async function main() {
  const verb = process.argv[2]
  const given = {}
  for (let i = 3; i + 1 < process.argv.length; i += 2) given[process.argv[i].slice(2)] = process.argv[i + 1]
  const kafka = new Kafka({ clientId: 'seawall-test', brokers: [given.bootstrap], logLevel: logLevel.NOTHING })
  if (verb === 'write') return write(kafka, given.topic, given.codec, given.acks, given.file)
  if (verb !== 'jobs') throw new Error(`${verb}: KafkaJS only writes here`)
  const jobs = fs.readFileSync(given.file, 'utf8').trim().split('\n')
  for (const [number, line] of jobs.entries()) {
    const [job, ...args] = line.split('\t')
    try {
      await (job === 'names' ? names : write)(kafka, ...args)
      console.log(`ok\t${number}`)
    } catch (error) {
      console.log(`fail\t${number}\t${String(error).replace(/\n/g, ' ')}`)
    }
  }
}

main().catch((error) => {
  console.error(error)
  process.exitCode = 1
})
