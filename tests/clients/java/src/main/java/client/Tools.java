package client;

import java.io.InputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.internals.Exit;
import org.apache.kafka.tools.ConsoleProducer;
import org.apache.kafka.tools.consumer.ConsoleConsumer;

/** Kafka's console tools, called by their main methods, many in one process. */
public final class Tools {
    private static final class Exited extends RuntimeException {
        final int status;

        Exited(int status, String message) {
            super("exit " + status + (message == null ? "" : ": " + message));
            this.status = status;
        }
    }

    private Tools() {}

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            throw new Exited(status, message);
        });
        Exit.setHaltProcedure((status, message) -> {
            throw new Exited(status, message);
        });
        String bootstrap = Jobs.bootstrap(args);
        Jobs.main(args, (verb, job) -> {
            switch (verb) {
                case "write" -> write(bootstrap, job[0], job[1], job[2], Path.of(job[3]));
                case "read" -> read(bootstrap, job);
                default -> throw new IllegalArgumentException(verb);
            }
        });
    }

    private static void write(String bootstrap, String topic, String codec, String acks, Path file) throws Exception {
        List<String> args = new ArrayList<>(List.of(
            "--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec,
            "--command-property", "acks=" + (acks.equals("idem") ? "all" : acks),
            "--command-property", "enable.idempotence=" + acks.equals("idem")));
        InputStream before = System.in;
        try (InputStream lines = Files.newInputStream(file)) {
            System.setIn(lines);
            ended(() -> ConsoleProducer.main(args.toArray(String[]::new)));
        } finally {
            System.setIn(before);
        }
    }

    private static void read(String bootstrap, String[] job) throws Exception {
        List<String> args = List.of(
            "--bootstrap-server", bootstrap, "--topic", job[0], "--partition", job[1], "--offset", job[2],
            "--max-messages", job[3], "--timeout-ms", "60000");
        PrintStream before = System.out;
        try (PrintStream out = new PrintStream(Files.newOutputStream(Path.of(job[4])), false)) {
            System.setOut(out);
            ended(() -> ConsoleConsumer.main(args.toArray(String[]::new)));
        } finally {
            System.setOut(before);
        }
    }

    private interface Main {
        void run() throws Exception;
    }

    /** Runs a tool to its end: a return, or an exit with status 0. */
    private static void ended(Main tool) throws Exception {
        try {
            tool.run();
        } catch (Exited exited) {
            if (exited.status != 0) {
                throw exited;
            }
        }
    }
}
