package client;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.internals.Exit;
import org.apache.kafka.tools.ConfigCommand;

/** The Java client behind TLS and logins: a case a line, as in secure.py; a record there and back, or the error. */
public final class Secure {
    private static final String SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule";
    private static final String PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule";
    private static final String OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLogin";

    private Secure() {}

    public static void main(String[] args) throws Exception {
        if (args[0].equals("configs")) {
            configs(List.of(args).subList(1, args.length).toArray(String[]::new));
            return;
        }
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", args[0] + ".token");
        int number = 0;
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            try {
                roundTrip(fields(line));
                System.out.println("ok\t" + number);
            } catch (Throwable error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                System.out.println("fail\t" + number + "\t" + String.valueOf(cause).replace('\n', ' ')
                    + " / " + String.valueOf(cause.getCause()).replace('\n', ' '));
            }
            number++;
        }
        System.out.flush();
    }

    /** kafka-configs by its main method. */
    private static void configs(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> System.exit(status));
        ConfigCommand.main(args);
    }

    private static Map<String, String> fields(String line) {
        Map<String, String> given = new HashMap<>();
        for (String word : line.split("\t")) {
            int at = word.indexOf('=');
            given.put(word.substring(0, at), word.substring(at + 1));
        }
        return given;
    }

    private static Properties properties(Map<String, String> given) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", given.get("bootstrap"));
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        properties.put("max.block.ms", "15000");
        properties.put("security.protocol", given.get("protocol"));
        if (given.containsKey("ca")) {
            properties.put("ssl.truststore.type", "PEM");
            properties.put("ssl.truststore.location", given.get("ca"));
        }
        if (given.containsKey("identity")) {
            properties.put("ssl.keystore.type", "PEM");
            properties.put("ssl.keystore.location", given.get("identity"));
        }
        if (given.containsKey("mechanism")) {
            properties.put("sasl.mechanism", given.get("mechanism"));
            login(properties, given);
        }
        return properties;
    }

    private static void login(Properties properties, Map<String, String> given) {
        if (given.get("mechanism").equals("OAUTHBEARER")) {
            String module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
            properties.put("sasl.jaas.config", module + " required;");
            properties.put("sasl.login.callback.handler.class", OAUTH + "CallbackHandler");
            properties.put("sasl.oauthbearer.jwt.retriever.class",
                "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever");
            properties.put("sasl.oauthbearer.token.endpoint.url", "file://" + given.get("token"));
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", "file://" + given.get("token"));
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", given.get("token"));
            return;
        }
        String module = given.get("mechanism").equals("PLAIN") ? PLAIN : SCRAM;
        properties.put("sasl.jaas.config", module + " required username=\"" + given.get("user")
            + "\" password=\"" + given.get("password") + "\";");
    }

    private static void roundTrip(Map<String, String> given) throws Exception {
        Properties properties = properties(given);
        TopicPartition partition = new TopicPartition(given.get("topic"), 0);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            producer.send(new ProducerRecord<>(given.get("topic"), 0, null, "there and back")).get();
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.currentTimeMillis() + 30_000;
            while (consumer.poll(Duration.ofMillis(500)).isEmpty()) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("no record came back");
                }
            }
        }
    }
}
