package client;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.HashMap;

/** The verbs that every client program of these tests has, and the file of jobs that runs many in one process. */
final class Jobs {
    /** One client: does a job or throws. */
    interface Client {
        void run(String verb, String[] args) throws Exception;
    }

    private static final Map<String, List<String>> OPTIONS = Map.of(
        "write", List.of("topic", "codec", "acks", "file"),
        "read", List.of("topic", "partition", "offset", "count", "out"));

    private Jobs() {}

    /** The value of {@code --bootstrap}. */
    static String bootstrap(String[] args) {
        return option(args, "bootstrap");
    }

    static void main(String[] args, Client client) throws Exception {
        if (args[0].equals("jobs")) {
            int number = 0;
            for (String line : Files.readAllLines(Path.of(option(args, "file")))) {
                report(number++, line.split("\t"), client);
            }
            return;
        }
        List<String> names = OPTIONS.get(args[0]);
        client.run(args[0], names.stream().map(name -> option(args, name)).toArray(String[]::new));
    }

    private static void report(int number, String[] job, Client client) {
        try {
            client.run(job[0], Arrays.copyOfRange(job, 1, job.length));
            System.out.println("ok\t" + number);
        } catch (Throwable error) {
            System.out.println("fail\t" + number + "\t" + String.valueOf(error).replace('\n', ' '));
        }
        System.out.flush();
    }

    private static String option(String[] args, String name) {
        Map<String, String> given = new HashMap<>();
        for (int i = 1; i + 1 < args.length; i += 2) {
            given.put(args[i], args[i + 1]);
        }
        return given.get("--" + name);
    }
}
