package client;

import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** One member of a group: writes down what it gets and commits it, until it is told to stop. See groups.py for the file. */
public final class Member {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final PrintStream out;
    private final Map<TopicPartition, OffsetAndMetadata> pending = new HashMap<>();
    private volatile boolean stopping;

    private Member(Path file) throws Exception {
        out = new PrintStream(Files.newOutputStream(file, StandardOpenOption.CREATE, StandardOpenOption.APPEND), true);
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> given = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) {
            given.put(args[i].substring(2), args[i + 1]);
        }
        new Member(Path.of(given.get("out"))).run(given);
    }

    private static Properties properties(Map<String, String> given) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", given.get("bootstrap"));
        properties.put("group.id", given.get("group"));
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        properties.put("metadata.max.age.ms", "5000");
        if (given.containsKey("instance")) {
            properties.put("group.instance.id", given.get("instance"));
        }
        if (given.get("protocol").equals("consumer")) {
            properties.put("group.protocol", "consumer");
        } else {
            properties.put("partition.assignment.strategy", ASSIGNORS.get(given.get("assignor")));
            properties.put("session.timeout.ms", given.get("session"));
            properties.put("heartbeat.interval.ms", "1000");
        }
        return properties;
    }

    private void run(Map<String, String> given) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties(given));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.subscribe(List.of(given.get("topic")), new Listener(consumer));
        say("start");
        try {
            while (!stopping) {
                step(consumer);
            }
        } catch (WakeupException expected) {
            // Told to stop.
        } catch (RuntimeException error) {
            say("error", String.valueOf(error));
        }
        consumer.close();
        say("end");
    }

    private void step(KafkaConsumer<String, String> consumer) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
            say("record", record.partition(), record.offset(), record.value());
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            pending.put(partition, new OffsetAndMetadata(record.offset() + 1));
        }
        try {
            commit(consumer);
        } catch (RebalanceInProgressException later) {
            // A cooperative rebalance: it goes on with the next poll, and what is taken away is committed before.
        }
    }

    /** A stop that comes in the middle of a commit does not end it. */
    private void commit(KafkaConsumer<String, String> consumer) {
        if (pending.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(pending);
        } catch (WakeupException stopped) {
            stopping = true;
            consumer.commitSync(pending);
        }
        pending.forEach((partition, offset) -> say("committed", partition.partition(), offset.offset()));
        pending.clear();
    }

    private void say(Object... words) {
        StringBuilder line = new StringBuilder(String.valueOf(System.currentTimeMillis()));
        for (Object word : words) {
            line.append('\t').append(word);
        }
        out.print(line.append('\n'));
        out.flush();
    }

    private final class Listener implements ConsumerRebalanceListener {
        private final KafkaConsumer<String, String> consumer;

        Listener(KafkaConsumer<String, String> consumer) {
            this.consumer = consumer;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            say("assigned", numbers(partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            commit(consumer);
            say("revoked", numbers(partitions));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            pending.keySet().removeAll(partitions);
            say("lost", numbers(partitions));
        }
    }

    private static String numbers(Collection<TopicPartition> partitions) {
        return partitions.stream().map(partition -> String.valueOf(partition.partition())).collect(Collectors.joining(","));
    }
}
