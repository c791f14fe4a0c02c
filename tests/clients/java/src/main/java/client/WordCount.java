package client;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words with Kafka Streams; the counts live in memory and are restored from their changelog topic.
 *
 * <pre>
 *   run BOOTSTRAP APPLICATION IN OUT GUARANTEE [TOPIC-SETTING=VALUE...]   until it is killed
 *   feed BOOTSTRAP IN FILE                                                writes the lines of a file
 *   counts BOOTSTRAP OUT FILE                                             the last committed count of each word
 * </pre>
 */
public final class WordCount {
    public static void main(String[] args) throws Exception {
        List<String> words = Arrays.asList(args);
        switch (words.get(0)) {
            case "run" -> run(words.subList(1, words.size()));
            case "feed" -> feed(words.get(1), words.get(2), Path.of(words.get(3)));
            case "counts" -> counts(words.get(1), words.get(2), Path.of(words.get(3)));
            default -> throw new IllegalArgumentException(words.get(0));
        }
    }

    private static void run(List<String> args) throws InterruptedException {
        Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args.get(0));
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, args.get(1));
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args.get(4));
        config.put(StreamsConfig.STATE_DIR_CONFIG, System.getProperty("java.io.tmpdir") + "/state-" + ProcessHandle.current().pid());
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        config.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6_000);
        config.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 1_000);
        config.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 10_000);
        for (String setting : args.subList(5, args.size())) {
            String[] pair = setting.split("=", 2);
            config.put(StreamsConfig.topicPrefix(pair[0]), pair[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args.get(2), Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long()))
                .toStream()
                .to(args.get(3), Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        // A broker that is away for a while is not the end of an application.
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("replaced\t" + error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.out.println("state\t" + now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(30))));
        streams.start();
        Thread.currentThread().join();
    }

    private static void feed(String bootstrap, String topic, Path file) throws Exception {
        Map<String, Object> config = Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (String line : Files.readAllLines(file)) {
                sent.add(producer.send(new ProducerRecord<>(topic, "key-" + sent.size(), line)));
            }
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    private static void counts(String bootstrap, String topic, Path file) throws Exception {
        Map<String, Long> counts = new TreeMap<>();
        Map<String, Object> config = Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
                ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        try (Consumer<String, Long> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> all = consumer.partitionsFor(topic).stream()
                    .map(row -> new TopicPartition(topic, row.partition())).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(200))) {
                    counts.put(record.key(), record.value());
                }
            }
        }
        StringBuilder lines = new StringBuilder();
        counts.forEach((word, count) -> lines.append(word).append('\t').append(count).append('\n'));
        Files.writeString(file, lines, StandardCharsets.UTF_8);
    }

    private WordCount() {}
}
