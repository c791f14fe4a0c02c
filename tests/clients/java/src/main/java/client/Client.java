package client;

import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client: a producer, a consumer that assigns itself partitions, and the admin client. */
public final class Client {
    private static final long PATIENCE_MS = 60_000;
    private static final long END_PATIENCE_MS = 10_000;

    private Client() {}

    public static void main(String[] args) throws Exception {
        String bootstrap = Jobs.bootstrap(args);
        Jobs.main(args, (verb, job) -> {
            switch (verb) {
                case "write" -> write(bootstrap, job[0], job[1], job[2], Path.of(job[3]));
                case "read" -> read(bootstrap, job);
                case "create" -> create(bootstrap, Path.of(job[0]));
                case "end" -> end(bootstrap, job[0], Long.parseLong(job[1]));
                case "names" -> names(bootstrap, Path.of(job[0]));
                case "errors" -> errors(Path.of(job[0]));
                case "times" -> times(bootstrap, job[0], job[1]);
                case "delete" -> delete(bootstrap, Path.of(job[0]));
                default -> throw new IllegalArgumentException(verb);
            }
        });
    }

    private static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return properties;
    }

    private static void write(String bootstrap, String topic, String codec, String acks, Path file) throws Exception {
        Properties properties = properties(bootstrap);
        properties.put("compression.type", codec);
        properties.put("acks", acks.equals("idem") ? "all" : acks);
        properties.put("enable.idempotence", String.valueOf(acks.equals("idem")));
        properties.put("delivery.timeout.ms", String.valueOf(PATIENCE_MS));
        properties.put("linger.ms", "2");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            for (String line : Files.readAllLines(file, StandardCharsets.ISO_8859_1)) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, line.getBytes(StandardCharsets.ISO_8859_1))));
            }
            producer.flush();
            long last = -1;
            for (Future<RecordMetadata> future : sent) {
                last = Math.max(last, future.get().offset());
            }
            if (!acks.equals("0") && last != sent.size() - 1) {
                throw new IllegalStateException("last offset " + last + " after " + sent.size() + " records");
            }
        }
    }

    private static void read(String bootstrap, String[] job) throws Exception {
        TopicPartition partition = new TopicPartition(job[0], Integer.parseInt(job[1]));
        long left = Long.parseLong(job[3]);
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties(bootstrap));
             OutputStream out = Files.newOutputStream(Path.of(job[4]))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, Long.parseLong(job[2]));
            while (left > 0) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException(left + " records still missing");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (left-- > 0) {
                        out.write(record.value());
                        out.write('\n');
                    }
                }
            }
        }
    }

    private static void create(String bootstrap, Path file) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            String[] words = line.split(" ");
            topics.add(new NewTopic(words[0], Integer.parseInt(words[1]), (short) 1));
        }
        try (Admin admin = Admin.create(properties(bootstrap))) {
            admin.createTopics(topics).all().get();
        }
    }

    private static void delete(String bootstrap, Path file) throws Exception {
        try (Admin admin = Admin.create(properties(bootstrap))) {
            admin.deleteTopics(Files.readAllLines(file).stream().map(line -> line.split(" ")[0]).toList()).all().get();
        }
    }

    /** Waits until the end of partition 0 has reached a count (acks=0 may still be on its way), which it must not pass. */
    private static void end(String bootstrap, String topic, long expected) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        long deadline = System.currentTimeMillis() + END_PATIENCE_MS;
        try (Admin admin = Admin.create(properties(bootstrap))) {
            long end = -1;
            while (end < expected && System.currentTimeMillis() < deadline) {
                end = admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset();
            }
            if (end != expected) {
                throw new IllegalStateException("log end " + end + ", expected " + expected);
            }
        }
    }

    /** Ten records at 1,000 to 10,000 in one batch: looked up by time to the record, and by the largest time. */
    private static void times(String bootstrap, String topic, String codec) throws Exception {
        Properties properties = properties(bootstrap);
        properties.put("compression.type", codec);
        properties.put("linger.ms", "1000");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            for (long second = 1; second <= 10; second++) {
                producer.send(new ProducerRecord<>(topic, 0, second * 1_000, null, new byte[100]));
            }
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(properties)) {
            for (long second = 1; second <= 10; second++) {
                offsetAt(admin, partition, OffsetSpec.forTimestamp(second * 1_000 - 500), second - 1);
                offsetAt(admin, partition, OffsetSpec.forTimestamp(second * 1_000), second - 1);
            }
            offsetAt(admin, partition, OffsetSpec.forTimestamp(10_001), -1);
            offsetAt(admin, partition, OffsetSpec.maxTimestamp(), 9);
        }
    }

    /** Kafka's error codes and their names, one a line. */
    private static void errors(Path out) throws Exception {
        Files.write(out, Arrays.stream(Errors.values()).map(error -> error.code() + " " + error.name()).toList());
    }

    private static void offsetAt(Admin admin, TopicPartition partition, OffsetSpec spec, long expected) throws Exception {
        long offset = admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
        if (offset != expected) {
            throw new IllegalStateException(spec + ": offset " + offset + ", expected " + expected);
        }
    }

    /** Every topic of a file is listed and described under exactly its name. */
    private static void names(String bootstrap, Path file) throws Exception {
        Set<String> expected = new TreeSet<>();
        for (String line : Files.readAllLines(file)) {
            expected.add(line.split(" ")[0]);
        }
        try (Admin admin = Admin.create(properties(bootstrap))) {
            Set<String> listed = new TreeSet<>(admin.listTopics().names().get());
            listed.retainAll(expected);
            Set<String> described = new TreeSet<>(admin.describeTopics(expected).allTopicNames().get().keySet());
            if (!listed.equals(expected) || !described.equals(expected)) {
                throw new IllegalStateException(Arrays.toString(new int[] {expected.size(), listed.size(), described.size()}));
            }
        }
    }
}
