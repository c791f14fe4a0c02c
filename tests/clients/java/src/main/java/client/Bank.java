package client;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transfers between accounts, each in a transaction of two records, and those who look at them.
 *
 * <pre>
 *   transfer BOOTSTRAP TOPIC ID SECONDS OUT     every third transfer is aborted; OUT tells what became of each
 *   audit BOOTSTRAP TOPIC OUT                   what a reader of committed records sees: key, partition, amount
 *   copy BOOTSTRAP IN OUT GROUP SECONDS         consume, transform, produce: offsets go with the records
 * </pre>
 *
 * A client of Kafka 4 uses transactions v2 here, one of Kafka 3 those of v1.
 */
public final class Bank {
    private static final int PATIENCE_MS = 120_000;

    public static void main(String[] args) throws Exception {
        List<String> words = Arrays.asList(args);
        switch (words.get(0)) {
            case "transfer" -> transfer(words.subList(1, words.size()));
            case "audit" -> audit(words.get(1), words.get(2), Path.of(words.get(3)));
            case "copy" -> copy(words.subList(1, words.size()));
            default -> throw new IllegalArgumentException(words.get(0));
        }
    }

    private static Producer<String, String> producer(String bootstrap, String id) {
        Map<String, Object> config = new HashMap<>();
        config.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        config.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, id);
        config.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 20_000);
        config.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, PATIENCE_MS);
        config.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, PATIENCE_MS);
        config.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, 10_000);
        config.put(ProducerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 200);
        Producer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static void transfer(List<String> args) throws Exception {
        String bootstrap = args.get(0);
        String topic = args.get(1);
        String id = args.get(2);
        long end = System.nanoTime() + Long.parseLong(args.get(3)) * 1_000_000_000L;
        try (PrintStream out = new PrintStream(args.get(4), StandardCharsets.UTF_8)) {
            Producer<String, String> producer = producer(bootstrap, id);
            int partitions = producer.partitionsFor(topic).size();
            for (int n = 0; System.nanoTime() < end; n++) {
                String key = id + "-" + n;
                String outcome = one(producer, topic, partitions, key, n);
                out.println(outcome + "\t" + key);
                if (outcome.equals("unknown")) {
                    // Whatever went wrong, a new instance begins from a clean state.
                    producer.close(Duration.ZERO);
                    producer = producer(bootstrap, id);
                }
            }
            producer.close();
        }
    }

    /** What became of a transfer: committed, aborted, or nobody knows. */
    private static String one(Producer<String, String> producer, String topic, int partitions, String key, int n) {
        try {
            producer.beginTransaction();
            Future<RecordMetadata> from = producer.send(new ProducerRecord<>(topic, n % partitions, key, "-" + (n + 1)));
            Future<RecordMetadata> to = producer.send(new ProducerRecord<>(topic, (n + 1) % partitions, key, "" + (n + 1)));
            if (n % 3 == 2) {
                if (n % 2 == 0) {
                    from.get();
                    to.get();
                }
                producer.abortTransaction();
                return "aborted";
            }
            producer.commitTransaction();
            return "committed";
        } catch (KafkaException | ExecutionException error) {
            System.err.println(key + "\t" + error);
            return "unknown";
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Consumer<String, String> consumer(String bootstrap, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        config.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private static void audit(String bootstrap, String topic, Path file) throws Exception {
        StringBuilder lines = new StringBuilder();
        try (Consumer<String, String> consumer = consumer(bootstrap, Map.of())) {
            List<TopicPartition> all = consumer.partitionsFor(topic).stream()
                    .map(row -> new TopicPartition(topic, row.partition())).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.offset() < ends.get(new TopicPartition(topic, record.partition()))) {
                        lines.append(record.key()).append('\t').append(record.partition()).append('\t').append(record.value()).append('\n');
                    }
                }
            }
        }
        Files.writeString(file, lines, StandardCharsets.UTF_8);
    }

    private static void copy(List<String> args) throws Exception {
        String bootstrap = args.get(0);
        String group = args.get(3);
        long end = System.nanoTime() + Long.parseLong(args.get(4)) * 1_000_000_000L;
        while (System.nanoTime() < end) {
            try (Producer<String, String> producer = producer(bootstrap, "copy-" + group);
                    Consumer<String, String> consumer = consumer(bootstrap, Map.of(ConsumerConfig.GROUP_ID_CONFIG, group))) {
                consumer.subscribe(List.of(args.get(1)));
                copyUntil(end, producer, consumer, args.get(2));
            } catch (KafkaException error) {
                System.err.println("copy\t" + error);
            }
        }
    }

    private static void copyUntil(long end, Producer<String, String> producer, Consumer<String, String> consumer, String topic) {
        while (System.nanoTime() < end) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(topic, record.partition(), record.key(), record.value()));
                offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            producer.commitTransaction();
        }
    }

    private Bank() {}
}
