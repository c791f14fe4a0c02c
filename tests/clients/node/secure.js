// KafkaJS behind TLS and logins: a case a line, as in ../secure.py. A record there and back, or the error.
'use strict'

const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const PATIENCE_MS = 20_000

function settings(given) {
  const made = {
    clientId: 'seawall-test',
    brokers: [given.bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { retries: 1 },
    connectionTimeout: 10_000,
  }
  if (given.protocol.endsWith('SSL')) {
    made.ssl = { ca: given.ca ? [fs.readFileSync(given.ca, 'utf8')] : undefined }
    if (given.key) {
      made.ssl.key = fs.readFileSync(given.key, 'utf8')
      made.ssl.cert = fs.readFileSync(given.certificate, 'utf8')
    }
  }
  const mechanism = given.mechanism && given.mechanism.toLowerCase()
  if (mechanism === 'oauthbearer') {
    made.sasl = { mechanism, oauthBearerProvider: async () => ({ value: fs.readFileSync(given.token, 'utf8').trim() }) }
  } else if (mechanism) {
    made.sasl = { mechanism, username: given.user, password: given.password }
  }
  return made
}

async function roundTrip(given) {
  const kafka = new Kafka(settings(given))
  const producer = kafka.producer()
  const consumer = kafka.consumer({ groupId: `secure-${given.topic}` })
  let timer
  try {
    await producer.connect()
    await producer.send({ topic: given.topic, messages: [{ partition: 0, value: 'there and back' }] })
    await consumer.connect()
    await consumer.subscribe({ topic: given.topic, fromBeginning: true })
    await new Promise((resolve, reject) => {
      timer = setTimeout(() => reject(new Error('no record came back')), PATIENCE_MS)
      consumer.run({ eachMessage: async () => resolve() }).catch(reject)
    })
  } finally {
    clearTimeout(timer)
    await Promise.allSettled([producer.disconnect(), consumer.disconnect()])
  }
}

async function main() {
  const lines = fs.readFileSync(process.argv[2], 'utf8').trim().split('\n')
  for (const [number, line] of lines.entries()) {
    const given = Object.fromEntries(line.split('\t').map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]))
    try {
      await roundTrip(given)
      console.log(`ok\t${number}`)
    } catch (error) {
      console.log(`fail\t${number}\t${String(error).replace(/\n/g, ' ')}`)
    }
  }
}

main().then(() => process.exit(0))
